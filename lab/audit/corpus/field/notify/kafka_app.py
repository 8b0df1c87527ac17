"""Notifications: a Kafka consumer with pluggable senders."""

from __future__ import annotations

import abc
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from uuid import uuid4

import redis
from confluent_kafka import Consumer, KafkaError, Message, Producer
from slack_sdk.web import WebClient
from twilio.rest import Client as TwilioClient

LOG = logging.getLogger(__name__)
CONFIG = {
    "bootstrap.servers": "kafka:9092",
    "group.id": "notify",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}


class Sender(abc.ABC):
    @abc.abstractmethod
    def deliver(self, to: str, text: str) -> None: ...


class SmsSender(Sender):
    def __init__(self, client: TwilioClient, sender: str) -> None:
        self.client = client
        self.sender = sender

    def deliver(self, to: str, text: str) -> None:
        self.client.messages.create(to=to, from_=self.sender, body=text)


class SlackSender(Sender):
    def __init__(self, client: WebClient) -> None:
        self.client = client

    def deliver(self, to: str, text: str) -> None:
        self.client.chat_postMessage(channel=to, text=text)


class Seen:
    def __init__(self, connection: redis.Redis, prefix: str = "notify") -> None:
        self.connection = connection
        self.prefix = prefix

    def first(self, key: str) -> bool:
        return bool(self.connection.set(f"{self.prefix}:{key}", "1", nx=True))

    def for_a_while(self, key: str) -> bool:
        return bool(self.connection.set(f"{self.prefix}:{key}", "1", nx=True, px=60_000))  # bad: OG003


@dataclass
class Application:
    seen: Seen
    sms: SmsSender
    slack: SlackSender
    consumer: Consumer = field(default_factory=lambda: Consumer(CONFIG))

    def run(self) -> None:  # good: OG001, OG002, OG006, OG007
        self.consumer.subscribe(["notifications"])
        try:
            while True:
                msg = self.consumer.poll(1.0)
                if msg is None:
                    continue
                if msg.error():
                    if msg.error().code() == KafkaError._PARTITION_EOF:
                        continue
                    raise RuntimeError(msg.error())
                self.dispatch(msg)
                self.consumer.commit(message=msg, asynchronous=False)
        finally:
            self.consumer.close()

    def dispatch(self, msg: Message) -> None:
        note = json.loads(msg.value())
        if not self.seen.first(note["notification_id"]):
            LOG.info("notification %s went out before", note["notification_id"])
            return
        self.sms.deliver(note["to"], note["text"])


def main_loop_windowed(app: Application) -> None:
    while True:
        msg = app.consumer.poll(1.0)
        note = json.loads(msg.value())
        if not app.seen.for_a_while(note["notification_id"]):
            LOG.info("again")
            continue
        app.slack.deliver("#ops", note["text"])
        app.consumer.commit(message=msg)


def main_loop_bare(consumer: Consumer, slack: WebClient) -> None:
    while True:
        msg = consumer.poll(1.0)
        if msg is None or msg.error():
            continue
        note = json.loads(msg.value())
        slack.chat_postMessage(channel="#ops", text=note["text"])  # bad: OG001
        consumer.commit(message=msg)


def main_loop_auto() -> None:
    settings = {"bootstrap.servers": "kafka:9092", "group.id": "audit", "enable.auto.commit": "true"}
    consumer = Consumer(settings)  # bad: OG007
    consumer.subscribe(["audit"])
    while True:
        msg = consumer.poll(1.0)
        if msg is not None:
            print(msg.value(), file=sys.stdout)


def deduplicated(by: Callable[[dict], str]):
    """Runs a function once per key."""

    def decorate(function):
        @wraps(function)
        def wrapper(note, *args, **kwargs):
            if not redis.Redis().set(f"{function.__name__}:{by(note)}", 1, nx=True):
                LOG.info("skipped %s", by(note))
                return None
            return function(note, *args, **kwargs)

        return wrapper

    return decorate


@deduplicated(by=lambda note: note["notification_id"])
def handle_message(message):  # good: OG001, OG006
    WebClient().chat_postMessage(channel="#x", text=message["text"])


def forward(producer: Producer):
    consumer = Consumer(CONFIG)
    while True:
        msg = consumer.poll(1.0)
        event = json.loads(msg.value())
        event["forwarded_at"] = datetime.utcnow().isoformat()  # bad: OG011
        event["trace"] = str(uuid4())
        producer.produce("mirror", json.dumps(event))  # bad: OG001
        producer.flush()
        consumer.commit(msg)


def forward_in_transaction(producer: Producer):  # good: OG001
    producer.init_transactions()
    consumer = Consumer(CONFIG)
    while True:
        msg = consumer.poll(1.0)
        producer.begin_transaction()
        producer.produce("mirror", msg.value())
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
        producer.commit_transaction()
