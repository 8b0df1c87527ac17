"""Clients of the clinic's partners."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import aiohttp
import httpx
from tenacity import AsyncRetrying, retry, retry_if_exception_type, stop_after_attempt, wait_exponential


class LabClient:
    """Orders samples at the laboratory."""

    def __init__(self, base_url: str, http: httpx.AsyncClient | None = None) -> None:
        self._base = base_url.rstrip("/")
        self._http = http or httpx.AsyncClient(timeout=10)

    async def order(self, sample: dict) -> str:
        response = await self._http.post(f"{self._base}/orders", json=sample)
        response.raise_for_status()
        return response.json()["order"]

    async def order_keyed(self, sample: dict, *, key: str) -> str:
        response = await self._http.post(f"{self._base}/orders", json=sample, headers={"Idempotency-Key": key})
        response.raise_for_status()
        return response.json()["order"]

    async def results(self, order: str) -> dict:
        response = await self._http.get(f"{self._base}/orders/{order}/results")
        return response.json()

    @retry(stop=stop_after_attempt(5), wait=wait_exponential(max=20), reraise=True)
    async def order_stubbornly(self, sample: dict) -> str:
        response = await self._http.post(f"{self._base}/orders", json=sample)  # bad: OG010
        response.raise_for_status()
        return response.json()["order"]

    @retry(stop=stop_after_attempt(5), retry=retry_if_exception_type(httpx.ConnectError))
    async def order_if_unreachable(self, sample: dict) -> str:
        response = await self._http.post(f"{self._base}/orders", json=sample)
        return response.json()["order"]

    async def fetch_patiently(self, order: str) -> dict:
        async for attempt in AsyncRetrying(stop=stop_after_attempt(3)):
            with attempt:
                return await self.results(order)
        raise RuntimeError("unreachable")


@dataclass(slots=True)
class Pager:
    """Pages the doctor on duty."""

    session: aiohttp.ClientSession
    token: str = os.environ.get("PAGER_TOKEN", "")

    async def page(self, doctor: str, text: str) -> None:
        body = {"to": doctor, "text": text}
        async with self.session.post("https://pager.example/v1/pages", json=body) as answer:
            answer.raise_for_status()

    async def page_reserved(self, doctor: str, text: str) -> None:
        async with self.session.post("https://pager.example/v1/pages", json={"to": doctor, "text": text}) as answer:
            answer.raise_for_status()


@functools.lru_cache
def lab() -> LabClient:
    return LabClient(os.environ["LAB_URL"])
