"""FastStream, dramatiq, RQ, Huey, arq, MCP in one service."""

import datetime as dt
import os
from typing import Any

import dramatiq
import httpx
import structlog
from arq.connections import RedisSettings
from dramatiq.brokers.redis import RedisBroker
from fastmcp import FastMCP
from faststream import Context, FastStream
from faststream.nats import NatsBroker
from huey import SqliteHuey
from pydantic import BaseModel
from redis import Redis
from rq import Queue, get_current_job
from rq.decorators import job

from .clients import Crm, Telephony

log = structlog.get_logger()
nats_broker = NatsBroker()
app = FastStream(nats_broker)
dramatiq.set_broker(RedisBroker())
huey = SqliteHuey(filename="/tmp/huey.db")
mcp = FastMCP("crm")
cache = Redis()
queue = Queue(connection=cache)
crm = Crm(os.environ["CRM_URL"])
phones = Telephony()


class Lead(BaseModel):
    lead_id: str
    email: str
    created: dt.datetime


@nats_broker.subscriber("leads.created", "crm")
async def lead_created(lead: Lead, logger=Context()) -> None:
    await crm.create_contact(lead.email)  # bad: OG001


@nats_broker.subscriber("leads.claimed", "crm")
async def lead_claimed(lead: Lead) -> None:  # good: OG001, OG006
    if not cache.set(f"lead:{lead.lead_id}", "claimed", nx=True):
        log.info("lead.known", lead=lead.lead_id)
        return
    await crm.create_contact_quietly(lead.email)


@dramatiq.actor(max_retries=3, min_backoff=1000)
def call_back(lead_id: str, number: str) -> None:
    phones.dial(number)  # bad: OG001


@dramatiq.actor
def call_once(lead_id: str, number: str) -> None:  # good: OG001
    try:
        phones.remember(lead_id)
    except phones.AlreadyKnown:
        log.info("known", lead=lead_id)
        return
    phones.dial_quietly(number)


@job("default", connection=cache)
def export_lead(lead_id: str) -> None:
    current = get_current_job()
    if not cache.set(f"export:{current.id}", 1, nx=True):  # bad: OG002
        log.info("known", lead=lead_id)
        return
    httpx.post(os.environ["EXPORT_URL"], json={"lead": lead_id})


def import_lead(lead_id: str) -> dict[str, Any]:
    answer = httpx.post(f"{os.environ['IMPORT_URL']}/leads", json={"id": lead_id})  # bad: OG001
    return answer.json()


def schedule(lead_id: str) -> None:
    queue.enqueue(import_lead, lead_id, job_id=f"import-{lead_id}")


@huey.task(retries=2)
def score(lead_id: str) -> None:
    try:
        httpx.post(os.environ["SCORE_URL"], json={"lead": lead_id}, headers={"Idempotency-Key": f"score-{lead_id}"})
    except Exception:  # bad: OG008
        log.error("score.failed", lead=lead_id)


async def enrich(ctx: dict[str, Any], lead_id: str) -> None:
    client: httpx.AsyncClient = ctx["client"]
    await client.post("/enrich", json={"lead": lead_id, "job": ctx["job_id"]})  # bad: OG001


async def enrich_keyed(ctx: dict[str, Any], lead_id: str) -> None:  # good: OG001
    client: httpx.AsyncClient = ctx["client"]
    await client.post("/enrich", json={"lead": lead_id}, headers={"Idempotency-Key": f"enrich:{lead_id}"})


class WorkerSettings:
    functions = [enrich, enrich_keyed]
    redis_settings = RedisSettings()


@mcp.tool
async def create_ticket(title: str, body: str) -> str:
    async with httpx.AsyncClient(base_url=os.environ["DESK_URL"]) as client:
        answer = await client.post("/tickets", json={"title": title, "body": body})  # bad: OG001
    return answer.json()["id"]


@mcp.tool
async def find_ticket(title: str) -> list[str]:  # good: OG001
    async with httpx.AsyncClient(base_url=os.environ["DESK_URL"]) as client:
        answer = await client.post("/tickets/search", json={"title": title})
    return answer.json()["ids"]
