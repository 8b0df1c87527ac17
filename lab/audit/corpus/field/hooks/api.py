"""FastAPI with SQLModel, dependency classes and a service layer."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
from datetime import datetime, timezone
from typing import Annotated, Any

import httpx
import structlog
from fastapi import APIRouter, BackgroundTasks, Body, Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from redis.asyncio import Redis
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, create_engine, select

from .models import InboundHook, Invoice

log = structlog.get_logger()
engine = create_engine(os.environ.get("DB", "sqlite://"))
router = APIRouter(tags=["hooks"])


def get_session():
    with Session(engine) as session:
        yield session


def get_redis(request: Request) -> Redis:
    return request.app.state.redis


SessionDep = Annotated[Session, Depends(get_session)]
RedisDep = Annotated[Redis, Depends(get_redis)]


class Erp:
    """Posts to the ERP."""

    def __init__(self, base: str = "https://erp.example") -> None:
        self.http = httpx.Client(base_url=base)

    def book(self, invoice: str) -> None:
        self.http.post("/bookings", json={"invoice": invoice})

    def book_bare(self, invoice: str) -> None:
        self.http.post("/bookings", json={"invoice": invoice})  # bad: OG001

    def upsert(self, invoice: str) -> None:
        self.http.put(f"/invoices/{invoice}", json={"invoice": invoice})


class BookingService:
    def __init__(self, session: SessionDep, erp: Annotated[Erp, Depends()]) -> None:
        self.session = session
        self.erp = erp

    def first(self, event_id: str) -> bool:
        self.session.add(InboundHook(provider_event_id=event_id, at=datetime.now(timezone.utc)))
        try:
            self.session.commit()
        except IntegrityError:
            self.session.rollback()
            log.info("hook.repeat", event=event_id)
            return False
        return True

    def book_once(self, event_id: str, invoice: str) -> bool:
        if not self.first(event_id):
            return False
        self.erp.book(invoice)
        return True

    def book_bare(self, invoice: str) -> None:
        self.erp.book_bare(invoice)


ServiceDep = Annotated[BookingService, Depends()]


@router.post("/hooks/paid")
def paid(service: ServiceDep, payload: dict[str, Any] = Body()):  # good: OG001, OG006
    return {"booked": service.book_once(payload["event_id"], payload["invoice"])}


@router.post("/hooks/paid/v0")
def paid_v0(service: ServiceDep, payload: dict[str, Any] = Body()):
    service.book_bare(payload["invoice"])
    return {"ok": True}


@router.post("/hooks/paid/v1")
def paid_v1(session: SessionDep, payload: dict[str, Any] = Body()):
    invoice = session.exec(select(Invoice).where(Invoice.number == payload["invoice"])).one()
    invoice.paid_cents += payload["cents"]  # bad: OG001
    session.add(invoice)
    session.commit()
    return {"ok": True}


@router.post("/hooks/paid/v2")
def paid_v2(session: SessionDep, payload: dict[str, Any] = Body()):  # good: OG001, OG004
    session.add(InboundHook(provider_event_id=payload["event_id"], at=datetime.now(timezone.utc)))
    invoice = session.exec(select(Invoice).where(Invoice.number == payload["invoice"]).with_for_update()).one()
    invoice.paid_cents += payload["cents"]
    try:
        session.commit()
    except IntegrityError:
        session.rollback()
        log.info("hook.repeat", event=payload["event_id"])
        return {"status": "duplicate"}
    return {"ok": True}


@router.post("/hooks/paid/v3")
def paid_v3(session: SessionDep, erp: Annotated[Erp, Depends()], payload: dict[str, Any] = Body()):
    with session.begin():
        session.add(InboundHook(provider_event_id=payload["event_id"], at=datetime.now(timezone.utc)))
        session.flush()
        erp.http.post("/bookings", json=payload)  # bad: OG013
    return {"ok": True}


@router.post("/hooks/paid/v4")
def paid_v4(session: SessionDep, erp: Annotated[Erp, Depends()], payload: dict[str, Any] = Body()):  # good: OG013, OG001
    with session.begin():
        session.add(InboundHook(provider_event_id=payload["event_id"], at=datetime.now(timezone.utc)))
    erp.book(payload["invoice"])
    return {"ok": True}


@router.post("/hooks/mirror")
def mirror(erp: Annotated[Erp, Depends()], payload: dict[str, Any] = Body()):  # good: OG001
    erp.upsert(payload["invoice"])
    return {"ok": True}


@router.post("/hooks/ticket")
async def ticket(request: Request, cache: RedisDep, x_delivery: Annotated[str, Header()]):  # good: OG001
    if not await cache.set(f"hook:{x_delivery}", 1, nx=True, ex=86400 * 14):
        log.info("hook.repeat", delivery=x_delivery)
        return PlainTextResponse("repeat")
    body = await request.json()
    async with httpx.AsyncClient() as client:
        await client.post("https://tickets.example/api", json=body)
    return PlainTextResponse("ok")


@router.post("/hooks/ticket/v0")
async def ticket_v0(request: Request, cache: RedisDep):
    body = await request.json()
    if await cache.exists(f"hook:{body['id']}"):  # bad: OG005
        log.info("hook.repeat", delivery=body["id"])
        return PlainTextResponse("repeat")
    async with httpx.AsyncClient() as client:
        await client.post("https://tickets.example/api", json=body)
    await cache.set(f"hook:{body['id']}", 1)
    return PlainTextResponse("ok")


@router.post("/hooks/ticket/v1")
async def ticket_v1(request: Request, cache: RedisDep):
    body = await request.json()
    first = await cache.set(f"hook:{body['id']}:{datetime.now(timezone.utc):%Y%m%d%H%M}", 1, nx=True)  # bad: OG002
    if not first:
        log.info("hook.repeat", delivery=body["id"])
        return PlainTextResponse("repeat")
    async with httpx.AsyncClient() as client:
        await client.post("https://tickets.example/api", json=body)
    return PlainTextResponse("ok")


async def _forward(body: dict) -> None:
    async with httpx.AsyncClient() as client:
        await client.post("https://tickets.example/api", json=body)


@router.post("/hooks/ticket/v2")
async def ticket_v2(request: Request, cache: RedisDep):
    body = await request.json()
    if not await cache.setnx(f"hook:{body['id']}", 1):
        log.info("hook.repeat", delivery=body["id"])
        return PlainTextResponse("repeat")
    asyncio.create_task(_forward(body))  # bad: OG007
    return PlainTextResponse("ok")


@router.post("/hooks/ticket/v3")
async def ticket_v3(request: Request, cache: RedisDep, x_signature: str = Header("")):  # good: OG008
    raw = await request.body()
    if not hmac.compare_digest(x_signature, os.environ["SIG"]):
        raise HTTPException(401)
    body = json.loads(raw)
    if not await cache.setnx(f"hook:{body['id']}", 1):
        log.info("hook.repeat", delivery=body["id"])
        return PlainTextResponse("repeat")
    try:
        await _forward(body)
    except httpx.HTTPError:
        await cache.delete(f"hook:{body['id']}")
        return JSONResponse({"detail": "try again"}, status_code=503)
    return PlainTextResponse("ok")


@router.post("/hooks/ticket/v4")
async def ticket_v4(request: Request, cache: RedisDep):
    body = await request.json()
    if not await cache.setnx(f"hook:{body['id']}", 1):
        log.info("hook.repeat", delivery=body["id"])
        return PlainTextResponse("repeat")
    try:
        await _forward(body)
    except Exception as exc:  # bad: OG008
        log.error("hook.failed", error=str(exc))
    return PlainTextResponse("ok")


@router.get("/hooks/state")
async def state(cache: RedisDep):
    return {"size": await cache.dbsize()}


app = FastAPI()
app.include_router(router)
