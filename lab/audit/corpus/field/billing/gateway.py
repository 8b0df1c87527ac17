from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import stripe
from tenacity import retry, stop_after_attempt, wait_random_exponential


class PaymentGateway(Protocol):
    async def charge(self, order_id: str, cents: int, *, key: str | None = None) -> str: ...

    async def refund(self, charge_id: str) -> None: ...


@dataclass
class AcmeGateway(PaymentGateway):
    base_url: str = os.environ.get("ACME_URL", "https://pay.acme.test")
    timeout: float = 10.0

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.base_url, timeout=self.timeout)

    async def charge(self, order_id: str, cents: int, *, key: str | None = None) -> str:
        async with self._client() as client:
            response = await client.post("/charges", json={"order": order_id, "amount": cents})
            response.raise_for_status()
            return response.json()["id"]

    async def refund(self, charge_id: str) -> None:
        async with self._client() as client:
            await client.post(f"/charges/{charge_id}/refunds")

    async def status(self, charge_id: str) -> dict[str, Any]:
        async with self._client() as client:
            return (await client.get(f"/charges/{charge_id}")).json()


class StripeGateway:
    def __init__(self, secret: str) -> None:
        stripe.api_key = secret

    def pay(self, order_id: str, cents: int) -> Any:
        return stripe.PaymentIntent.create(
            amount=cents,
            currency="usd",
            metadata={"order_id": order_id},
            idempotency_key=f"pay:{order_id}",
        )

    def pay_without_key(self, order_id: str, cents: int) -> Any:
        return stripe.PaymentIntent.create(  # bad: OG009
            amount=cents, currency="usd", metadata={"order_id": order_id}
        )

    @retry(wait=wait_random_exponential(max=10), stop=stop_after_attempt(4))
    def payout(self, account: str, cents: int) -> Any:
        return stripe.Transfer.create(  # bad: OG009, OG010
            destination=account, amount=cents, currency="usd"
        )
