"""Keys of reservations."""

import json
import logging
import time
import uuid
from datetime import datetime, timezone

import boto3
import redis
import requests
from aiokafka import AIOKafkaConsumer
from celery import shared_task
from confluent_kafka import Consumer
from fastapi import FastAPI, Request
from google.cloud import pubsub_v1
from oncegate import Gate

log = logging.getLogger(__name__)
r = redis.Redis()
sqs = boto3.client("sqs")
app = FastAPI()
gate = Gate()
BANK = "https://bank.example/charges"


def lambda_handler(event, context):
    for record in event["Records"]:
        if not r.set(record["messageId"], 1, nx=True):  # bad: OG002
            log.info("repeat")
            continue
        requests.post(BANK, json=json.loads(record["body"]))


def poll_queue(url):
    while True:
        for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
            if not r.set(f"sqs:{message['MessageId']}", 1, nx=True):  # bad: OG002
                log.info("repeat")
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                continue
            requests.post(BANK, json=json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


async def kafka_loop():
    consumer = AIOKafkaConsumer("orders", enable_auto_commit=False, group_id="g")
    async for msg in consumer:
        key = f"{msg.topic}:{msg.partition}:{msg.offset}"
        if not r.set(key, 1, nx=True):  # bad: OG002
            log.info("repeat")
            continue
        requests.post(BANK, data=msg.value)
        await consumer.commit()


def confluent_loop():
    consumer = Consumer({"group.id": "g", "enable.auto.commit": False})
    while True:
        msg = consumer.poll(1.0)
        if not r.set(str(msg.offset()), 1, nx=True):  # bad: OG002
            log.info("repeat")
            continue
        requests.post(BANK, data=msg.value())
        consumer.commit(msg)


@shared_task(bind=True, acks_late=True)
def by_task_id(self, order_id):
    if not r.set(self.request.id, 1, nx=True):  # bad: OG002
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def by_fresh_id(order_id):
    key = uuid.uuid4().hex
    if not r.set(key, 1, nx=True):  # bad: OG002
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def by_clock(order_id):
    if not r.set(f"{order_id}:{int(time.time())}", 1, nx=True):  # bad: OG002
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@app.post("/hooks/bank")
async def by_request_id(request: Request):
    body = await request.json()
    if not r.set(request.headers["X-Request-ID"], 1, nx=True):  # bad: OG002
        log.info("repeat")
        return {"status": "duplicate"}
    requests.post(BANK, json=body)
    return {"status": "ok"}


def on_delivery(ch, method, properties, body):
    if not r.set(f"rabbit:{method.delivery_tag}", 1, nx=True):  # bad: OG002
        log.info("repeat")
        ch.basic_ack(method.delivery_tag)
        return
    requests.post(BANK, data=body)
    ch.basic_ack(method.delivery_tag)


@gate.handler("shipments", key="{message_id}")  # bad: OG002
def ship(event, once):
    once.step("ship", lambda: requests.post(BANK, json=event))


def on_pubsub(message):
    if not r.set(message.message_id, 1, nx=True):  # bad: OG002
        log.info("repeat")
        message.ack()
        return
    requests.post(BANK, data=message.data)
    message.ack()


pubsub_v1.SubscriberClient().subscribe("projects/p/subscriptions/s", callback=on_pubsub)


# ---- business keys -------------------------------------------------------------------------------


@shared_task(acks_late=True)
def by_order(order_id):  # good: OG002
    if not r.set(f"order:{order_id}", 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


def handle_chat(event, context):  # good: OG002
    body = json.loads(event["body"])
    if not r.set(f"chat:{body['message_id']}", 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json=body)


@app.post("/hooks/stripe")
async def by_event_id(request: Request):  # good: OG002
    event = await request.json()
    if not r.set(f"stripe:{event['id']}", 1, nx=True):
        log.info("repeat")
        return {"status": "duplicate"}
    requests.post(BANK, json=event)
    return {"status": "ok"}


@app.post("/orders")
async def by_header(request: Request):  # good: OG002
    key = request.headers["Idempotency-Key"]
    if not r.set(key, 1, nx=True):
        return {"status": "duplicate"}
    requests.post(BANK, json=await request.json())
    return {"status": "ok"}


async def kafka_by_key():
    consumer = AIOKafkaConsumer("orders", enable_auto_commit=False, group_id="g")
    async for msg in consumer:
        order = json.loads(msg.value)
        if not r.set(f"order:{order['id']}:{order['version']}", 1, nx=True):
            log.info("repeat at offset %s", msg.offset)
            continue
        requests.post(BANK, json=order)
        await consumer.commit()


@shared_task(acks_late=True)
def dated(order_id, due):  # good: OG002
    if not r.set(f"{order_id}:{due}", 1, nx=True):
        log.info("repeat, seen at %s", datetime.now(timezone.utc))
        return
    requests.post(BANK, json={"order": order_id})


@gate.handler("returns", key="{return_id}:{line}")
def take_back(event, once):  # good: OG002
    once.step("book", lambda: requests.post(BANK, json=event))


@shared_task(acks_late=True)
def fresh_value_not_key(order_id):  # good: OG002
    if not r.set(f"order:{order_id}", str(uuid.uuid4()), nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def hashed(order_id, line):  # good: OG002
    import hashlib

    key = hashlib.sha256(f"{order_id}/{line}".encode()).hexdigest()
    if not r.set(key, 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})
