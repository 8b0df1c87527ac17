"""RabbitMQ, SQS, Pub/Sub and Lambda workers as teams write them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from typing import Any, Callable

import aio_pika
import aioboto3
import boto3
import pika
import pymongo
import requests
from google.cloud import pubsub_v1
from kombu import Connection, Queue
from kombu.mixins import ConsumerMixin
from mypy_boto3_sqs import SQSClient
from pymongo.errors import DuplicateKeyError

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)
mongo = pymongo.MongoClient()["bus"]
QUEUE = os.environ.get("QUEUE", "")


class Carrier:
    def __init__(self) -> None:
        self.session = requests.Session()

    def pickup(self, shipment: dict) -> None:
        self.session.post("https://carrier.example/pickups", json=shipment).raise_for_status()

    def pickup_bare(self, shipment: dict) -> None:
        self.session.post("https://carrier.example/pickups", json=shipment).raise_for_status()  # bad: OG001


def remember(key: str) -> bool:
    try:
        mongo.processed.insert_one({"_id": key})
        return True
    except DuplicateKeyError:
        return False


class PickupWorker(ConsumerMixin):
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.carrier = Carrier()

    def get_consumers(self, Consumer, channel):
        return [
            Consumer([Queue("pickups")], callbacks=[self.on_pickup], accept=["json"]),
            Consumer([Queue("pickups.v0")], callbacks=[self.on_pickup_bare]),
            Consumer([Queue("pickups.v1")], callbacks=[self.on_pickup_acked]),
        ]

    def on_pickup(self, body, message):  # good: OG001, OG002, OG006, OG007, OG008
        if not remember(body["shipment_id"]):
            log.info("shipment %s again", body["shipment_id"])
            message.ack()
            return
        try:
            self.carrier.pickup(body)
        except Exception:
            log.exception("pickup")
            message.requeue()
            return
        message.ack()

    def on_pickup_bare(self, body, message):
        self.carrier.pickup_bare(body)
        message.ack()

    def on_pickup_acked(self, body, message):
        message.ack()  # bad: OG007
        if not remember(body["shipment_id"]):
            log.info("shipment %s again", body["shipment_id"])
            return
        self.carrier.pickup(body)


class LabelWorker(threading.Thread):
    """pika in a thread, with a table of functions by routing key."""

    def __init__(self, params: pika.ConnectionParameters) -> None:
        super().__init__(daemon=True)
        self.params = params
        self.carrier = Carrier()

    def run(self) -> None:
        connection = pika.BlockingConnection(self.params)
        channel = connection.channel()
        channel.queue_declare("labels", durable=True)
        for method, properties, body in channel.consume("labels", inactivity_timeout=1):
            if method is None:
                continue
            self.handle(json.loads(body))
            channel.basic_ack(method.delivery_tag)

    def handle(self, label: dict) -> None:
        requests.post("https://labels.example/print", json=label)  # bad: OG001


class Dispatcher:
    """What it calls is only known when it runs."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[dict], None]] = {}

    def on_message(self, ch, method, properties, body) -> None:
        event = json.loads(body)
        self.handlers[event["type"]](event)
        ch.basic_ack(method.delivery_tag)


async def process_invoice(message: aio_pika.abc.AbstractIncomingMessage) -> None:
    async with message.process(requeue=True):
        invoice = json.loads(message.body)
        if not remember(f"invoice-{invoice['number']}"):
            return  # bad: OG006
        requests.post("https://books.example/invoices", json=invoice)


async def process_delivery_tag(message: aio_pika.abc.AbstractIncomingMessage) -> None:
    async with message.process():
        if not remember(str(message.delivery_tag)):  # bad: OG002
            log.info("again")
            return
        requests.post("https://books.example/invoices", data=message.body)


async def process_forever(message: aio_pika.abc.AbstractIncomingMessage) -> None:
    invoice = json.loads(message.body)
    if not remember(invoice["number"]):
        log.info("invoice %s again", invoice["number"])
        return  # bad: OG008
    requests.post("https://books.example/invoices", json=invoice)
    await message.ack()


async def rabbit() -> None:
    connection = await aio_pika.connect_robust(os.environ["AMQP"])
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        invoices = await channel.declare_queue("invoices", durable=True)
        await invoices.consume(process_invoice)
        tags = await channel.declare_queue("tags")
        await tags.consume(callback=process_delivery_tag)
        forever = await channel.declare_queue("forever")
        await forever.consume(process_forever)
        quick = await channel.declare_queue("quick")
        await quick.consume(process_invoice, no_ack=True)  # bad: OG007
        await asyncio.Future()


class SqsWorker:
    def __init__(self, sqs: SQSClient, url: str, carrier: Carrier) -> None:
        self.sqs, self.url, self.carrier = sqs, url, carrier

    def _receive(self) -> list[dict[str, Any]]:
        return self.sqs.receive_message(QueueUrl=self.url, WaitTimeSeconds=20, AttributeNames=["All"]).get("Messages", [])

    def _delete(self, message: dict[str, Any]) -> None:
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def run(self) -> None:  # good: OG001, OG002, OG007, OG008
        while True:
            for message in self._receive():
                shipment = json.loads(message["Body"])
                if remember(shipment["id"]):
                    self.carrier.pickup(shipment)
                else:
                    log.info("shipment %s again", shipment["id"])
                self._delete(message)

    def run_by_receipt(self) -> None:
        while True:
            for message in self._receive():
                shipment = json.loads(message["Body"])
                if remember(message["ReceiptHandle"]):  # bad: OG002
                    self.carrier.pickup(shipment)
                else:
                    log.info("again")
                self._delete(message)

    def run_early(self) -> None:
        while True:
            for message in self._receive():
                self._delete(message)  # bad: OG007
                shipment = json.loads(message["Body"])
                if remember(shipment["id"]):
                    self.carrier.pickup(shipment)
                else:
                    log.info("again")

    def run_bare(self) -> None:
        while True:
            for message in self._receive():
                self.carrier.pickup_bare(json.loads(message["Body"]))
                self._delete(message)


async def async_poll() -> None:
    session = aioboto3.Session()
    async with session.client("sqs") as sqs, session.client("sns") as sns:
        while True:
            answer = await sqs.receive_message(QueueUrl=QUEUE)
            for message in answer.get("Messages", []):
                await sns.publish(TopicArn="arn:x", Message=message["Body"])  # bad: OG001
                await sqs.delete_message(QueueUrl=QUEUE, ReceiptHandle=message["ReceiptHandle"])


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    failures: list[dict[str, str]] = []
    carrier = Carrier()
    for record in event["Records"]:
        try:
            shipment = json.loads(record["body"])
            if not remember(shipment["id"]):
                log.info("shipment %s again", shipment["id"])
                continue
            carrier.pickup(shipment)
        except Exception:
            log.exception("record %s", record["messageId"])
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}


def stream_handler(event, context):
    client = boto3.client("events")
    for record in event["Records"]:
        client.put_events(Entries=[{"Detail": json.dumps(record["dynamodb"]), "Source": "x", "DetailType": "y"}])  # bad: OG001


def callback(message: pubsub_v1.subscriber.message.Message) -> None:
    message.ack()  # bad: OG007
    order = json.loads(message.data)
    mongo.orders.replace_one({"_id": order["id"]}, order, upsert=True)
    requests.put(f"https://erp.example/orders/{order['id']}", json=order)


def callback_good(message: pubsub_v1.subscriber.message.Message) -> None:  # good: OG001, OG007
    order = json.loads(message.data)
    mongo.orders.replace_one({"_id": order["id"]}, order, upsert=True)
    requests.put(f"https://erp.example/orders/{order['id']}", json=order)
    message.ack()


def callback_counter(message: pubsub_v1.subscriber.message.Message) -> None:
    order = json.loads(message.data)
    mongo.totals.update_one({"_id": order["customer"]}, {"$inc": {"orders": 1}}, upsert=True)  # bad: OG001
    message.ack()


def main(argv: list[str]) -> None:
    client = pubsub_v1.SubscriberClient()
    with client:
        for function in (callback, callback_good, callback_counter):
            client.subscribe(argv[1], callback=function)
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv)
