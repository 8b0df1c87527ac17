"""Ports of the wallet: protocols and their adapters."""

from __future__ import annotations

import abc
from typing import Protocol

import grpc
import httpx
import stripe
from twilio.rest import Client as Twilio

from .proto import payouts_pb2, payouts_pb2_grpc


class Sms(Protocol):
    async def send(self, to: str, text: str) -> None: ...


class TwilioSms:
    def __init__(self, sid: str, token: str) -> None:
        self._client = Twilio(sid, token)

    async def send(self, to: str, text: str) -> None:
        self._client.messages.create(to=to, from_="+49", body=text)


class PayoutPort(abc.ABC):
    @abc.abstractmethod
    async def pay(self, account: str, amount: int, reference: str) -> str: ...


class GrpcPayouts(PayoutPort):
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = payouts_pb2_grpc.PayoutsStub(channel)

    async def pay(self, account: str, amount: int, reference: str) -> str:
        reply = await self._stub.CreatePayout(payouts_pb2.PayoutRequest(account=account, amount=amount))
        return reply.id


class Cards:
    def __init__(self, key: str) -> None:
        self.client = stripe.StripeClient(key)

    def charge(self, customer: str, amount: int, *, key: str) -> str:
        intent = self.client.payment_intents.create(
            params={"customer": customer, "amount": amount, "currency": "eur", "confirm": True},
            options={"idempotency_key": key},
        )
        return intent.id

    def charge_unkeyed(self, customer: str, amount: int) -> str:
        intent = self.client.payment_intents.create(  # bad: OG009
            params={"customer": customer, "amount": amount, "currency": "eur", "confirm": True}
        )
        return intent.id


class Fx:
    """Exchange rates: only reads."""

    def __init__(self) -> None:
        self.http = httpx.AsyncClient(base_url="https://fx.example")

    async def rate(self, pair: str) -> float:
        return (await self.http.get(f"/rates/{pair}")).json()["rate"]

    async def quote(self, pair: str, amount: int) -> dict:
        return (await self.http.post("/quotes", json={"pair": pair, "amount": amount})).json()
