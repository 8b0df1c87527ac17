"""AWS and Google."""

from __future__ import annotations

import base64
import json
import logging
import os
import time
import uuid
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import datetime, timezone
from decimal import Decimal

import boto3
import functions_framework
import requests
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, batch_processor
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent, idempotent_function
from botocore.exceptions import ClientError
from google.cloud import pubsub_v1
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

logger = logging.getLogger()
ddb = boto3.resource("dynamodb")
table = ddb.Table(os.environ.get("KEYS", "keys"))
sns = boto3.client("sns")
sqs = boto3.client("sqs")
ses = boto3.client("ses")
persistence = DynamoDBPersistenceLayer(table_name="idempotency")
processor = BatchProcessor(event_type=EventType.SQS)


def reserve(key: str) -> bool:
    try:
        table.put_item(Item={"pk": key, "at": Decimal(str(time.time()))}, ConditionExpression="attribute_not_exists(pk)")
    except ClientError as error:
        if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
            return False
        raise
    return True


def lambda_handler(event, context):
    for record in event["Records"]:
        order = json.loads(record["body"])
        sns.publish(TopicArn=os.environ["TOPIC"], Message=json.dumps(order))  # bad: OG001


def handler(event, context):  # good: OG001, OG002, OG006
    for record in event["Records"]:
        order = json.loads(record["body"])
        if not reserve(order["order_id"]):
            logger.info("order %s again", order["order_id"])
            continue
        sns.publish(TopicArn=os.environ["TOPIC"], Message=json.dumps(order))


def by_message_id(event, context):
    for record in event["Records"]:
        if not reserve(record["messageId"]):  # bad: OG002
            logger.info("again")
            continue
        ses.send_email(Source="a@b.c", Destination={"ToAddresses": ["x@y.z"]}, Message={})


@idempotent(persistence_store=persistence, config=IdempotencyConfig(event_key_jmespath="order_id", expires_after_seconds=30 * 86400))
def powertools_handler(event, context):  # good: OG001, OG003
    ses.send_email(Source="a@b.c", Destination={"ToAddresses": [event["mail"]]}, Message={})


@idempotent(persistence_store=persistence)
def powertools_short(event, context):  # near: the default window of Powertools is one hour
    ses.send_email(Source="a@b.c", Destination={"ToAddresses": [event["mail"]]}, Message={})


@idempotent_function(data_keyword_argument="order", persistence_store=persistence, config=IdempotencyConfig(event_key_jmespath="id", expires_after_seconds=30 * 86400))
def process_order(*, order: dict) -> None:
    requests.post("https://erp.example/orders", json=order, timeout=3)


def record_handler(record):  # good: OG001
    process_order(order=record.json_body)


@batch_processor(record_handler=record_handler, processor=processor)
def batch_handler(event, context):
    return processor.response()


def swallowing_handler(event, context):
    results = []
    for record in event["Records"]:
        body = json.loads(record["body"])
        try:
            if reserve(body["id"]):
                results.append(requests.post("https://erp.example/orders", json=body, timeout=3).status_code)
            else:
                logger.info("%s again", body["id"])
        except Exception:  # bad: OG008
            logger.exception("order %s", body["id"])
    return {"statusCode": 200, "results": results}


def checked_handler(event, context):
    body = json.loads(event["body"])
    found = table.get_item(Key={"pk": body["id"]})  # bad: OG005
    if "Item" in found:
        logger.info("again")
        return {"statusCode": 200}
    requests.post("https://erp.example/orders", json=body, timeout=3)
    table.put_item(Item={"pk": body["id"]})
    return {"statusCode": 201}


class QueuePoller:
    """A long-polling SQS worker."""

    def __init__(self, queue_url: str, client=None) -> None:
        self.sqs = client or boto3.client("sqs")
        self.url = queue_url
        self.http = requests.Session()
        self.http.mount("https://", HTTPAdapter(max_retries=Retry(total=5, backoff_factor=1, allowed_methods={"GET", "POST"})))  # bad: OG010

    def run_forever(self) -> None:
        while True:
            answer = self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10, WaitTimeSeconds=20)
            for message in answer.get("Messages", ()):
                self.process(message)
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def process(self, message: dict) -> None:
        body = json.loads(message["Body"])
        self.http.post("https://erp.example/orders", json=body)  # bad: OG001


def delete_first(url: str) -> None:
    queue = boto3.resource("sqs").Queue(url)
    while True:
        for message in queue.receive_messages(WaitTimeSeconds=20):
            message.delete()  # bad: OG007
            order = json.loads(message.body)
            table.update_item(Key={"pk": order["id"]}, UpdateExpression="SET #s = :s", ExpressionAttributeValues={":s": "done"})


def delete_last(url: str) -> None:  # good: OG007
    queue = boto3.resource("sqs").Queue(url)
    while True:
        for message in queue.receive_messages(WaitTimeSeconds=20):
            order = json.loads(message.body)
            table.update_item(Key={"pk": order["id"]}, UpdateExpression="SET #s = :s", ExpressionAttributeValues={":s": "done"})
            message.delete()


def add_points(event, context):
    for record in event["Records"]:
        body = json.loads(record["body"])
        table.update_item(Key={"pk": body["customer"]}, UpdateExpression="ADD points :p", ExpressionAttributeValues={":p": body["points"]})  # bad: OG001


def fifo_forward(event, context):
    for record in event["Records"]:
        body = json.loads(record["body"])
        sqs.send_message(QueueUrl="https://sqs/next.fifo", MessageBody=record["body"], MessageGroupId="g", MessageDeduplicationId=str(uuid.uuid4()))  # bad: OG012


def fifo_forward_keyed(event, context):  # good: OG009, OG012
    for record in event["Records"]:
        body = json.loads(record["body"])
        sqs.send_message(QueueUrl="https://sqs/next.fifo", MessageBody=record["body"], MessageGroupId="g", MessageDeduplicationId=body["order_id"])  # bad: OG003


subscriber = pubsub_v1.SubscriberClient()
publisher = pubsub_v1.PublisherClient()


def on_pubsub(message: pubsub_v1.subscriber.message.Message) -> None:
    body = json.loads(message.data.decode())
    publisher.publish("projects/p/topics/t", message.data)  # bad: OG001
    message.ack()
    logger.info("done %s", body["id"])


def on_pubsub_id(message) -> None:
    if not reserve(message.message_id):  # bad: OG002
        logger.info("again")
        message.ack()
        return
    publisher.publish("projects/p/topics/t", message.data)
    message.ack()


def on_pubsub_good(message) -> None:  # good: OG001, OG002, OG008
    body = json.loads(message.data)
    if not reserve(body["id"]):
        logger.info("%s again", body["id"])
        message.ack()
        return
    try:
        publisher.publish("projects/p/topics/t", message.data).result(timeout=10)
    except Exception:
        logger.exception("publish")
        message.nack()
        return
    message.ack()


def listen() -> None:
    path = subscriber.subscription_path("p", "s")
    futures = [subscriber.subscribe(path, callback=one) for one in (on_pubsub, on_pubsub_id)]
    futures.append(subscriber.subscribe(path, on_pubsub_good))
    try:
        futures[0].result()
    except FutureTimeout:
        futures[0].cancel()


@functions_framework.cloud_event
def gcs_event(cloud_event):
    payload = json.loads(base64.b64decode(cloud_event.data["message"]["data"]))
    at = datetime.utcnow()  # bad: OG011
    requests.post("https://erp.example/files", json={"file": payload["name"], "at": at.isoformat()})  # bad: OG001


@functions_framework.cloud_event
def gcs_event_utc(cloud_event):  # good: OG001, OG011
    payload = json.loads(base64.b64decode(cloud_event.data["message"]["data"]))
    at = datetime.now(tz=timezone.utc)
    requests.put(f"https://erp.example/files/{payload['name']}", json={"at": at.isoformat()})
