"""RabbitMQ with pika and aio-pika."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from datetime import datetime

import aio_pika
import pika
import psycopg2
import stripe
from aio_pika.abc import AbstractIncomingMessage
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties
from psycopg2.extras import RealDictCursor
from sendgrid import SendGridAPIClient
from sendgrid.helpers.mail import Mail
from twilio.rest import Client

LOGGER = logging.getLogger(__name__)
twilio = Client("sid", "token")


def on_sms(channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
    order = json.loads(body)
    twilio.messages.create(to=order["phone"], from_="+100", body="paid")  # bad: OG001
    channel.basic_ack(delivery_tag=method.delivery_tag)


def on_sms_by_tag(channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes, db) -> None:
    order = json.loads(body)
    with db, db.cursor() as cur:
        cur.execute("INSERT INTO processed (key) VALUES (%s) ON CONFLICT DO NOTHING", (method.delivery_tag,))  # bad: OG002
        if cur.rowcount == 0:
            LOGGER.info("again")
            channel.basic_ack(method.delivery_tag)
            return
    twilio.messages.create(to=order["phone"], from_="+100", body="paid")
    channel.basic_ack(method.delivery_tag)


class RefundConsumer:
    def __init__(self, url: str, dsn: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.dsn = dsn

    def start(self) -> None:
        self.channel.basic_qos(prefetch_count=1)
        self.channel.basic_consume(queue="refunds", on_message_callback=self.on_refund)
        self.channel.basic_consume(queue="refunds.b", on_message_callback=self.on_refund_unkeyed)
        self.channel.basic_consume(queue="refunds.c", on_message_callback=self.on_refund_swallowed)
        self.channel.basic_consume(queue="audit", on_message_callback=self.on_audit, auto_ack=True)  # bad: OG007
        self.channel.start_consuming()

    def _reserve(self, key: str) -> bool:
        with psycopg2.connect(self.dsn) as conn, conn.cursor(cursor_factory=RealDictCursor) as cur:
            cur.execute("INSERT INTO refund_keys (key) VALUES (%s) ON CONFLICT DO NOTHING RETURNING key", (key,))
            return cur.fetchone() is not None

    def on_refund(self, ch, method, props, body) -> None:  # good: OG001, OG008, OG009, OG012
        refund = json.loads(body)
        try:
            stripe.Refund.create(payment_intent=refund["intent"], idempotency_key="refund-" + refund["refund_id"])
        except stripe.error.StripeError:
            ch.basic_nack(method.delivery_tag, requeue=False)
            LOGGER.exception("refund %s failed", refund["refund_id"])
            return
        ch.basic_ack(method.delivery_tag)

    def on_refund_unkeyed(self, ch, method, props, body) -> None:
        refund = json.loads(body)
        if not self._reserve(refund["refund_id"]):
            LOGGER.info("refund %s was made", refund["refund_id"])
            ch.basic_ack(method.delivery_tag)
            return
        stripe.Refund.create(payment_intent=refund["intent"])  # bad: OG009
        ch.basic_ack(method.delivery_tag)

    def on_refund_swallowed(self, ch, method, props, body) -> None:
        refund = json.loads(body)
        if not self._reserve(refund["refund_id"]):
            LOGGER.info("refund %s was made", refund["refund_id"])
            ch.basic_ack(method.delivery_tag)
            return
        try:
            stripe.Refund.create(payment_intent=refund["intent"], idempotency_key=refund["refund_id"])
        except Exception:  # bad: OG008
            LOGGER.exception("refund failed")
        finally:
            ch.basic_ack(method.delivery_tag)

    def on_audit(self, ch, method, props, body) -> None:
        with psycopg2.connect(self.dsn) as conn, conn.cursor() as cur:
            cur.execute("INSERT INTO audit_lines (line) VALUES (%s)", (body,))


def setup(db) -> None:
    channel = pika.BlockingConnection().channel()
    channel.basic_consume("sms", on_sms)
    channel.basic_consume("sms2", functools.partial(on_sms_by_tag, db=db))


class MailWorker:
    """aio-pika."""

    def __init__(self, sendgrid: SendGridAPIClient) -> None:
        self.sendgrid = sendgrid

    async def run(self) -> None:
        connection = await aio_pika.connect_robust("amqp://")
        channel = await connection.channel()
        queue = await channel.declare_queue("mails")
        await queue.consume(self.on_mail)
        await (await channel.declare_queue("receipts")).consume(self.on_receipt, no_ack=False)
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    self.send(json.loads(message.body))

    def send(self, mail: dict) -> None:
        self.sendgrid.send(Mail(from_email="a@b.c", to_emails=mail["to"], subject="x", html_content="y"))  # bad: OG001

    async def on_mail(self, message: AbstractIncomingMessage) -> None:
        async with message.process(ignore_processed=True):
            mail = json.loads(message.body)
            sent_at = datetime.strptime(mail["sent"], "%Y-%m-%dT%H:%M:%S")  # bad: OG011
            LOGGER.info("mail of %s", sent_at)
            await asyncio.to_thread(self.send, mail)

    async def on_receipt(self, message: AbstractIncomingMessage) -> None:
        await message.ack()  # bad: OG007
        receipt = json.loads(message.body)
        with psycopg2.connect("") as conn, conn.cursor() as cur:
            cur.execute("UPDATE receipts SET state = 'sent' WHERE id = %s", (receipt["id"],))
