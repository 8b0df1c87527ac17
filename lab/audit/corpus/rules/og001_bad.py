"""Outside calls that nothing keeps a repeat away from."""

import json
import smtplib

import boto3
import dramatiq
import grpc
import httpx
import pika
import requests
import stripe
from aio_pika import IncomingMessage
from aiokafka import AIOKafkaConsumer
from arq import func
from celery import shared_task
from fastapi import FastAPI
from faststream.rabbit import RabbitBroker
from huey import RedisHuey
from kafka import KafkaProducer
from mcp.server.fastmcp import FastMCP
from sendgrid import SendGridAPIClient
from slack_sdk import WebClient
from twilio.rest import Client

from payments_pb2_grpc import PaymentsStub

app = FastAPI()
broker = RabbitBroker()
huey = RedisHuey()
mcp = FastMCP("shop")
slack = WebClient(token="x")
twilio = Client("sid", "token")
sns = boto3.client("sns")
producer = KafkaProducer()


def on_order(ch, method, properties, body):
    order = json.loads(body)
    requests.post("https://bank.example/charges", json=order)  # bad: OG001
    ch.basic_ack(delivery_tag=method.delivery_tag)


@app.post("/orders")
async def create_order(order: dict):
    async with httpx.AsyncClient() as client:
        await client.post("https://carrier.example/shipments", json=order)  # bad: OG001
    return {"ok": True}


@shared_task(acks_late=True)
def send_welcome(user_id, email):
    message = f"Hello {user_id}"
    with smtplib.SMTP("localhost") as server:
        server.sendmail("shop@example.com", [email], message)  # bad: OG001


@dramatiq.actor
def text_customer(order_id, phone):
    twilio.messages.create(to=phone, from_="+100", body=f"Order {order_id}")  # bad: OG001


@huey.task()
def post_to_channel(text):
    slack.chat_postMessage(channel="#orders", text=text)  # bad: OG001


@broker.subscriber("invoices")
async def invoice_created(invoice: dict):
    sns.publish(TopicArn="arn:aws:sns:x", Message=json.dumps(invoice))  # bad: OG001


@mcp.tool()
def refund(charge: str) -> str:
    stripe.Refund.create(charge=charge)  # bad: OG001, OG009
    return "refunded"


async def mail_receipt(ctx, order_id, to):
    SendGridAPIClient("key").send({"to": to, "order": order_id})  # bad: OG001


class WorkerSettings:
    functions = [func(mail_receipt)]


async def consume_orders():
    consumer = AIOKafkaConsumer("orders", enable_auto_commit=False, group_id="billing")
    async for msg in consumer:
        order = json.loads(msg.value)
        producer.send("billing.charged", order)  # bad: OG001
        await consumer.commit()


async def on_message(message: IncomingMessage) -> None:
    async with message.process():
        stub = PaymentsStub(grpc.aio.insecure_channel("payments:443"))
        await stub.Charge(message.body)  # bad: OG001


def lambda_handler(event, context):
    for record in event["Records"]:
        order = json.loads(record["body"])
        requests.post("https://bank.example/charges", json=order, timeout=5)  # bad: OG001


def main():
    connection = pika.BlockingConnection()
    channel = connection.channel()
    channel.basic_consume("orders", on_message_callback=on_order)
    channel.start_consuming()


@shared_task(acks_late=True)
def deduct(cursor, account, amount):
    cursor.execute("UPDATE accounts SET balance = balance - %s WHERE id = %s", (amount, account))  # bad: OG001
