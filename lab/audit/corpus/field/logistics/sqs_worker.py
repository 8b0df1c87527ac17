"""A worker that drains an SQS queue with long polling and threads."""

import json
import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import boto3
import requests
from botocore.exceptions import ClientError

log = logging.getLogger("logistics")

QUEUE_URL = os.environ["QUEUE_URL"]
CARRIER_URL = os.environ["CARRIER_URL"]


class IdempotencyStore:
    """DynamoDB conditional writes."""

    def __init__(self, table_name):
        self._table = boto3.resource("dynamodb").Table(table_name)

    def try_acquire(self, key):
        try:
            self._table.put_item(Item={"id": key}, ConditionExpression="attribute_not_exists(id)")
            return True
        except ClientError as e:
            if e.response["Error"]["Code"] == "ConditionalCheckFailedException":
                return False
            raise


class CarrierClient:
    def __init__(self, session=None):
        self.session = session or requests.Session()

    def create_shipment(self, order):
        resp = self.session.post(f"{CARRIER_URL}/shipments", json=order, timeout=30)
        resp.raise_for_status()
        return resp.json()["tracking"]


class SafeWorker:
    def __init__(self):
        self.sqs = boto3.client("sqs")
        self.store = IdempotencyStore("shipments")
        self.carrier = CarrierClient()
        self.stopping = threading.Event()

    def run_forever(self):  # good: OG001, OG002, OG006, OG007, OG008
        while not self.stopping.is_set():
            response = self.sqs.receive_message(QueueUrl=QUEUE_URL, WaitTimeSeconds=20, MaxNumberOfMessages=10)
            for message in response.get("Messages", []):
                try:
                    self.process(message)
                except Exception:
                    log.exception("could not process %s", message["MessageId"])
                    continue
                self.sqs.delete_message(QueueUrl=QUEUE_URL, ReceiptHandle=message["ReceiptHandle"])

    def process(self, message):
        order = json.loads(message["Body"])
        if not self.store.try_acquire(f"shipment#{order['order_id']}"):
            log.warning("order %s is shipped already", order["order_id"])
            return
        tracking = self.carrier.create_shipment(order)
        log.info("order %s has tracking %s", order["order_id"], tracking)


class NaiveWorker:
    def __init__(self):
        self.sqs = boto3.client("sqs")
        self.pool = ThreadPoolExecutor(8)

    def run_forever(self):
        while True:
            batch = self.sqs.receive_message(QueueUrl=QUEUE_URL, WaitTimeSeconds=20)
            for message in batch.get("Messages", []):
                self.sqs.delete_message(QueueUrl=QUEUE_URL, ReceiptHandle=message["ReceiptHandle"])  # bad: OG007
                self._ship(json.loads(message["Body"]))

    def _ship(self, order):
        requests.post(f"{CARRIER_URL}/shipments", json=order, timeout=30)  # bad: OG001


class MessageIdWorker:
    def __init__(self):
        self.sqs = boto3.client("sqs")
        self.store = IdempotencyStore("messages")
        self.carrier = CarrierClient()

    def run_forever(self):
        while True:
            batch = self.sqs.receive_message(QueueUrl=QUEUE_URL, WaitTimeSeconds=20)
            for message in batch.get("Messages", []):
                if not self.store.try_acquire(message["MessageId"]):  # bad: OG002
                    log.info("dup")
                    self.sqs.delete_message(QueueUrl=QUEUE_URL, ReceiptHandle=message["ReceiptHandle"])
                    continue
                self.carrier.create_shipment(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=QUEUE_URL, ReceiptHandle=message["ReceiptHandle"])


def main():
    worker = SafeWorker()
    signal.signal(signal.SIGTERM, lambda *_: worker.stopping.set())
    worker.run_forever()


if __name__ == "__main__":
    main()
