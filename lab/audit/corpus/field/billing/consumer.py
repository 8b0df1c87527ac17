from __future__ import annotations

import asyncio
import json
import logging

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from .gateway import AcmeGateway, PaymentGateway, StripeGateway

logger = logging.getLogger("billing")


class BillingConsumer:
    """Charges orders as they come in from the shop."""

    def __init__(self, gateway: PaymentGateway, amqp_url: str) -> None:
        self._gateway = gateway
        self._amqp_url = amqp_url

    async def run(self) -> None:
        connection = await aio_pika.connect_robust(self._amqp_url)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=10)
            queue = await channel.declare_queue("orders", durable=True)
            await queue.consume(self.on_order)
            await asyncio.Future()

    async def on_order(self, message: AbstractIncomingMessage) -> None:
        async with message.process(requeue=True):
            payload = json.loads(message.body)
            logger.info("charging order %s", payload["order_id"])
            await self._gateway.charge(payload["order_id"], payload["total_cents"])  # bad: OG001


class RefundConsumer:
    def __init__(self) -> None:
        self.gateway = AcmeGateway()
        self.cards = StripeGateway("sk_test")

    async def on_refund(self, message: AbstractIncomingMessage) -> None:
        async with message.process():
            body = json.loads(message.body)
            charge = await self.gateway.status(body["charge_id"])
            if charge["refundable"]:
                await self.gateway.refund(body["charge_id"])  # bad: OG001

    async def on_card_payment(self, message: AbstractIncomingMessage) -> None:
        async with message.process():
            body = json.loads(message.body)
            await asyncio.to_thread(self.cards.pay, body["order_id"], body["total_cents"])

    async def on_unkeyed_payment(self, message: AbstractIncomingMessage) -> None:
        async with message.process():
            body = json.loads(message.body)
            await asyncio.to_thread(self.cards.pay_without_key, body["order_id"], body["total_cents"])  # bad: OG001

    async def on_payout(self, message: AbstractIncomingMessage) -> None:
        async with message.process():
            body = json.loads(message.body)
            self.cards.payout(body["account"], body["cents"])  # bad: OG001


async def main() -> None:
    refunds = RefundConsumer()
    connection = await aio_pika.connect_robust("amqp://localhost")
    channel = await connection.channel()
    for name, callback in (("refunds", refunds.on_refund), ("cards", refunds.on_card_payment)):
        queue = await channel.declare_queue(name)
        await queue.consume(callback)
    unkeyed = await channel.declare_queue("unkeyed")
    await unkeyed.consume(refunds.on_unkeyed_payment)
    payouts = await channel.declare_queue("payouts")
    await payouts.consume(refunds.on_payout)
