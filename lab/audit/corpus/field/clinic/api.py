"""Webhooks of the laboratory and the wards (FastAPI)."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import Annotated
from uuid import uuid4

import asyncpg
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Request, Response
from pydantic import AwareDatetime, BaseModel

from .clients import LabClient, Pager, lab
from .store import Inbox, ShortMemory

log = logging.getLogger("clinic")
router = APIRouter()


class Admission(BaseModel):
    admission_id: str
    patient: str
    at: AwareDatetime


class Discharge(BaseModel):
    discharge_id: str
    at: str


async def pool(request: Request) -> asyncpg.Pool:
    return request.app.state.pool


async def inbox(p: Annotated[asyncpg.Pool, Depends(pool)]) -> Inbox:
    return Inbox(p)


def memory() -> ShortMemory:
    return ShortMemory("redis://cache")


async def pager(request: Request) -> Pager:
    return Pager(request.app.state.http)


InboxDep = Annotated[Inbox, Depends(inbox)]
PagerDep = Annotated[Pager, Depends(pager)]
LabDep = Annotated[LabClient, Depends(lab)]


@router.post("/admissions")
async def admitted(body: Admission, box: InboxDep, client: LabDep) -> Response:
    await client.order({"patient": body.patient, "panel": "basic"})  # bad: OG001
    return Response(status_code=204)


@router.post("/admissions/once")
async def admitted_once(body: Admission, box: InboxDep, page: PagerDep):  # good: OG001, OG002, OG006, OG011
    if not await box.claim(body.admission_id):
        log.info("admission %s was announced before", body.admission_id)
        return {"status": "repeat"}
    await page.page_reserved("on-duty", f"admitted {body.patient} at {body.at.isoformat()}")
    return {"status": "paged"}


@router.post("/admissions/keyed")
async def admitted_keyed(body: Admission, client: LabDep):  # good: OG001, OG009, OG012
    order = await client.order_keyed({"patient": body.patient}, key=f"admission:{body.admission_id}")
    return {"order": order}


@router.post("/admissions/checked")
async def admitted_checked(body: Admission, box: InboxDep, page: PagerDep):
    if await box.has(body.admission_id):  # bad: OG005
        log.info("repeat of %s", body.admission_id)
        return {"status": "repeat"}
    await page.page_reserved("on-duty", body.patient)
    await box.put(body.admission_id)
    return {"status": "paged"}


@router.post("/admissions/short")
async def admitted_short(body: Admission, mem: Annotated[ShortMemory, Depends(memory)], page: PagerDep):
    if not await mem.first_time(body.admission_id):
        log.info("repeat of %s", body.admission_id)
        return {"status": "repeat"}
    await page.page_reserved("on-duty", body.patient)
    return {"status": "paged"}


@router.post("/admissions/long")
async def admitted_long(body: Admission, mem: Annotated[ShortMemory, Depends(memory)], page: PagerDep):  # good: OG003
    if not await mem.first_time_long(body.admission_id):
        log.info("repeat of %s", body.admission_id)
        return {"status": "repeat"}
    await page.page_reserved("on-duty", body.patient)
    return {"status": "paged"}


@router.post("/discharges")
async def discharged(body: Discharge, box: InboxDep, page: PagerDep):
    if not await box.claim(body.discharge_id):
        return Response(status_code=200)  # bad: OG006
    when = datetime.fromisoformat(body.at)  # bad: OG011
    await page.page_reserved("desk", f"left at {when:%H:%M}")
    return Response(status_code=200)


@router.post("/discharges/offset")
async def discharged_with_offset(body: Discharge, box: InboxDep, page: PagerDep):  # good: OG011
    if not await box.claim(body.discharge_id):
        log.info("repeat of %s", body.discharge_id)
        return Response(status_code=200)
    when = datetime.fromisoformat(body.at)
    if when.utcoffset() is None:
        when = when.replace(tzinfo=timezone.utc)
    await page.page_reserved("desk", f"left at {when:%H:%M}")
    return Response(status_code=200)


@router.post("/samples")
async def sampled(request: Request, client: LabDep):
    sample = await request.json()
    await client.order_keyed(sample, key=request.headers["x-request-id"])  # bad: OG002
    return {"ok": True}


@router.post("/samples/fresh")
async def sampled_fresh(request: Request, client: LabDep):
    sample = await request.json()
    key = uuid4().hex
    response = await client._http.post("https://lab.example/orders", json=sample, headers={"Idempotency-Key": key})  # bad: OG012
    return response.json()


@router.post("/samples/stubborn")
async def sampled_stubborn(sample: dict, box: InboxDep, client: LabDep):
    if not await box.claim(sample["sample_id"]):
        log.info("repeat")
        return {"status": "repeat"}
    return {"order": await client.order_stubbornly(sample)}


@router.post("/samples/careful")
async def sampled_carefully(sample: dict, box: InboxDep, client: LabDep):  # good: OG010
    if not await box.claim(sample["sample_id"]):
        log.info("repeat")
        return {"status": "repeat"}
    return {"order": await client.order_if_unreachable(sample)}


@router.post("/samples/read")
async def sample_results(sample: dict, client: LabDep):  # good: OG001, OG010
    return await client.fetch_patiently(sample["order"])


@router.post("/alarms", status_code=202)
async def alarm(body: dict, tasks: BackgroundTasks, page: PagerDep):
    tasks.add_task(page.page, "on-duty", body["text"])  # bad: OG001, OG007
    return {"accepted": True}


@router.post("/alarms/kept", status_code=202)
async def alarm_kept(body: dict, tasks: BackgroundTasks, box: InboxDep):  # good: OG007
    if not await box.claim(body["alarm_id"]):
        log.info("repeat")
        return {"accepted": True}
    tasks.add_task(log.info, "alarm %s", body["alarm_id"])
    return {"accepted": True}


app = FastAPI()
app.include_router(router, prefix="/hooks")
