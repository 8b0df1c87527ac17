"""Stripe calls us; FastAPI answers."""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from typing import Annotated, AsyncIterator

import stripe
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, status
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from .models import Invoice, WebhookEvent
from .notify import Mailer

logger = logging.getLogger(__name__)
engine = create_async_engine(os.environ["DATABASE_URL"])
SessionLocal = async_sessionmaker(engine, expire_on_commit=False)
router = APIRouter(prefix="/webhooks")


async def get_db() -> AsyncIterator[AsyncSession]:
    async with SessionLocal() as session:
        yield session


def get_mailer() -> Mailer:
    return Mailer(os.environ["SENDGRID_KEY"])


Db = Annotated[AsyncSession, Depends(get_db)]
Mail = Annotated[Mailer, Depends(get_mailer)]


async def verified(request: Request, stripe_signature: str = Header()) -> stripe.Event:
    try:
        return stripe.Webhook.construct_event(await request.body(), stripe_signature, os.environ["WH_SECRET"])
    except stripe.SignatureVerificationError as exc:
        raise HTTPException(status.HTTP_400_BAD_REQUEST) from exc


@router.post("/stripe")
async def stripe_hook(db: Db, mailer: Mail, event: stripe.Event = Depends(verified)):  # good: OG001, OG006
    db.add(WebhookEvent(id=event.id, type=event.type))
    try:
        await db.flush()
    except IntegrityError:
        await db.rollback()
        logger.info("stripe event %s was seen before", event.id)
        return {"received": True}
    await db.commit()
    if event.type == "invoice.paid":
        mailer.receipt(event.data.object.customer_email, event.id)
    return {"received": True}


@router.post("/stripe/v0")
async def stripe_hook_v0(db: Db, mailer: Mail, event: stripe.Event = Depends(verified)):
    existing = await db.scalar(select(WebhookEvent).where(WebhookEvent.id == event.id))  # bad: OG005
    if existing is not None:
        logger.info("stripe event %s was seen before", event.id)
        return {"received": True}
    mailer.receipt(event.data.object.customer_email, event.id)
    db.add(WebhookEvent(id=event.id, type=event.type))
    await db.commit()
    return {"received": True}


@router.post("/stripe/v1")
async def stripe_hook_v1(db: Db, mailer: Mail, event: stripe.Event = Depends(verified)):
    statement = pg_insert(WebhookEvent).values(id=event.id, type=event.type).on_conflict_do_nothing()
    result = await db.execute(statement)
    await db.commit()
    if result.rowcount == 0:
        return {"received": True}  # bad: OG006
    mailer.receipt(event.data.object.customer_email, event.id)
    return {"received": True}


@router.post("/stripe/v2")
async def stripe_hook_v2(db: Db, mailer: Mail, event: stripe.Event = Depends(verified)):
    if event.type != "invoice.paid":
        return {"ignored": True}
    invoice = await db.get(Invoice, event.data.object.id)
    if invoice is None:
        raise HTTPException(404)
    mailer.receipt_direct(invoice.email, invoice.id)  # bad: OG001
    return {"received": True}


@router.get("/stripe/health")
async def health():
    return {"ok": True}


@asynccontextmanager
async def lifespan(app: FastAPI):
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)
app.include_router(router)
