"""When a message counts as done."""

import asyncio
import json
import logging

import aio_pika
import boto3
import nats
import pika
import redis
import requests
from aiokafka import AIOKafkaConsumer
from celery import Celery, shared_task
from confluent_kafka import Consumer
from fastapi import BackgroundTasks, FastAPI
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from kafka import KafkaConsumer

app = FastAPI()
celery = Celery("shop")
broker = KafkaBroker()
log = logging.getLogger(__name__)
r = redis.Redis()
sqs = boto3.client("sqs")
BANK = "https://bank.example/charges"


def charge(order):
    if not r.set(order["id"], 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json=order)


async def timer_commit():
    consumer = AIOKafkaConsumer("orders", group_id="g", enable_auto_commit=True)  # bad: OG007
    async for msg in consumer:
        charge(json.loads(msg.value))


def default_commit():
    consumer = KafkaConsumer("orders", group_id="g")  # bad: OG007
    for msg in consumer:
        charge(json.loads(msg.value))


def confluent_commit():
    consumer = Consumer({"group.id": "g", "bootstrap.servers": "k", "enable.auto.commit": True})  # bad: OG007
    while True:
        msg = consumer.poll(1.0)
        charge(json.loads(msg.value()))


def on_auto(ch, method, properties, body):
    charge(json.loads(body))


def start():
    channel = pika.BlockingConnection().channel()
    channel.basic_consume("orders", on_message_callback=on_auto, auto_ack=True)  # bad: OG007


async def on_no_ack(message):
    charge(json.loads(message.body))


async def start_async():
    channel = await (await aio_pika.connect()).channel()
    queue = await channel.declare_queue("orders")
    await queue.consume(on_no_ack, no_ack=True)  # bad: OG007


@celery.task(acks_late=False)  # bad: OG007
def early_task(order):
    charge(order)


@broker.subscriber("orders", ack_policy=AckPolicy.ACK_FIRST)  # bad: OG007
async def first_ack(order: dict):
    charge(order)


def delete_first(url):
    while True:
        for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])  # bad: OG007
            charge(json.loads(message["Body"]))


async def on_nats(msg):
    await msg.ack()  # bad: OG007
    charge(json.loads(msg.data))


async def start_nats():
    nc = await nats.connect()
    await nc.jetstream().subscribe("orders", cb=on_nats)


@app.post("/webhooks/bank")
def in_background(event: dict, background_tasks: BackgroundTasks):
    background_tasks.add_task(charge, event)  # bad: OG007
    return {"ok": True}


@app.post("/webhooks/carrier")
async def in_a_task(event: dict):
    asyncio.create_task(charge_later(event))  # bad: OG007
    return {"ok": True}


async def charge_later(event):
    charge(event)


# ---- after the work ------------------------------------------------------------------------------


async def own_commit():  # good: OG007
    consumer = AIOKafkaConsumer("orders", group_id="g", enable_auto_commit=False)
    async for msg in consumer:
        charge(json.loads(msg.value))
        await consumer.commit()


def on_manual(ch, method, properties, body):  # good: OG007
    charge(json.loads(body))
    ch.basic_ack(method.delivery_tag)


def start_manual():
    channel = pika.BlockingConnection().channel()
    channel.basic_consume("orders", on_message_callback=on_manual, auto_ack=False)


@celery.task(acks_late=True)
def late_task(order):  # good: OG007
    charge(order)


@shared_task
def default_task(order):  # good: OG007
    charge(order)


def delete_last(url):  # good: OG007
    while True:
        for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
            charge(json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


async def on_process(message: aio_pika.IncomingMessage) -> None:  # good: OG007
    async with message.process():
        charge(json.loads(message.body))


@broker.subscriber("orders", ack_policy=AckPolicy.NACK_ON_ERROR)
async def nack_on_error(order: dict):  # good: OG007
    charge(order)


def confluent_manual():
    consumer = Consumer({"group.id": "g", "enable.auto.commit": False})
    while True:
        msg = consumer.poll(1.0)
        charge(json.loads(msg.value()))
        consumer.commit(msg)


@app.post("/webhooks/stored")
def stored_first(event: dict):  # good: OG007
    charge(event)
    return {"ok": True}


@app.post("/webhooks/logged")
def logs_in_background(event: dict, background_tasks: BackgroundTasks):  # good: OG007
    charge(event)
    background_tasks.add_task(log.info, "charged %s", event["id"])
    return {"ok": True}
