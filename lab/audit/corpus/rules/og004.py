"""The key and the business write."""

import logging

import asyncpg
from celery import shared_task
from django.db import transaction
from sqlalchemy import insert, update

from models import Account, Order, ProcessedEvent, Stock
from db import engine, pool, Session

log = logging.getLogger(__name__)


@shared_task(acks_late=True)
def key_in_its_own_block(event):
    with engine.begin() as conn:
        conn.execute(insert(Order).values(id=event["order_id"]))
    with engine.begin() as conn:
        conn.execute(insert(ProcessedEvent).values(id=event["id"]))  # bad: OG004


@shared_task(acks_late=True)
def key_committed_first(conn, event):
    conn.execute("INSERT INTO processed_events (id) VALUES (%s)", (event["id"],))  # bad: OG004
    conn.commit()
    conn.execute("UPDATE stock SET amount = %s WHERE sku = %s", (event["amount"], event["sku"]))
    conn.commit()


@shared_task(acks_late=True)
def key_committed_last(conn, event):
    conn.execute("UPDATE stock SET amount = %s WHERE sku = %s", (event["amount"], event["sku"]))
    conn.commit()
    conn.execute("INSERT INTO processed_events (id) VALUES (%s)", (event["id"],))  # bad: OG004
    conn.commit()


@shared_task(acks_late=True)
def key_outside_atomic(event):
    with transaction.atomic():
        Order.objects.create(number=event["order_id"])
    ProcessedEvent.objects.create(event_id=event["id"])  # bad: OG004


@shared_task(acks_late=True)
def django_autocommit(event):
    ProcessedEvent.objects.create(event_id=event["id"])  # bad: OG004
    Order.objects.create(number=event["order_id"])


async def handle_message(msg):
    async with pool.acquire() as conn:
        await conn.execute("INSERT INTO processed_messages (id) VALUES ($1)", msg["id"])  # bad: OG004
        await conn.execute("INSERT INTO orders (id) VALUES ($1)", msg["order_id"])


@shared_task(acks_late=True)
def two_sessions(event):
    with Session.begin() as session:
        session.add(Stock(sku=event["sku"], amount=event["amount"]))
    with Session.begin() as session:
        session.add(ProcessedEvent(id=event["id"]))  # bad: OG004


def _remember(event):
    with engine.begin() as conn:
        conn.execute(insert(ProcessedEvent).values(id=event["id"]))  # bad: OG004


@shared_task(acks_late=True)
def key_in_a_helper(event):
    _remember(event)
    with engine.begin() as conn:
        conn.execute(update(Account).values(balance=event["balance"]))


# ---- one transaction, or nothing to join ---------------------------------------------------------


@shared_task(acks_late=True)
def one_block(event):  # good: OG004
    with engine.begin() as conn:
        conn.execute(insert(ProcessedEvent).values(id=event["id"]))
        conn.execute(insert(Order).values(id=event["order_id"]))


@shared_task(acks_late=True)
def one_commit(conn, event):  # good: OG004
    conn.execute("INSERT INTO processed_events (id) VALUES (%s)", (event["id"],))
    conn.execute("UPDATE stock SET amount = %s WHERE sku = %s", (event["amount"], event["sku"]))
    conn.commit()


@shared_task(acks_late=True)
@transaction.atomic
def decorated(event):  # good: OG004
    ProcessedEvent.objects.create(event_id=event["id"])
    Order.objects.create(number=event["order_id"])


@shared_task(acks_late=True)
def one_atomic(event):  # good: OG004
    with transaction.atomic():
        _, created = ProcessedEvent.objects.get_or_create(event_id=event["id"])
        if not created:
            log.info("repeat of %s", event["id"])
            return
        Order.objects.create(number=event["order_id"])


async def process_message(msg):  # good: OG004
    async with pool.acquire() as conn, conn.transaction():
        await conn.execute("INSERT INTO processed_messages (id) VALUES ($1)", msg["id"])
        await conn.execute("INSERT INTO orders (id) VALUES ($1)", msg["order_id"])


@shared_task(acks_late=True)
def key_after_in_the_same(event):  # good: OG004
    with Session.begin() as session:
        session.add(Stock(sku=event["sku"], amount=event["amount"]))
        session.add(ProcessedEvent(id=event["id"]))


@shared_task(acks_late=True)
def only_the_key(event):  # good: OG004
    with engine.begin() as conn:
        conn.execute(insert(ProcessedEvent).values(id=event["id"]))
    log.info("noted %s", event["id"])


@shared_task(acks_late=True)
def two_business_writes(event):  # good: OG004
    with engine.begin() as conn:
        conn.execute(update(Order).values(state="packed"))
    with engine.begin() as conn:
        conn.execute(update(Stock).values(amount=event["amount"]))


def _write(conn, event):
    conn.execute(insert(ProcessedEvent).values(id=event["id"]))
    conn.execute(insert(Order).values(id=event["order_id"]))


@shared_task(acks_late=True)
def through_a_helper(event):  # good: OG004
    with engine.begin() as conn:
        _write(conn, event)


assert asyncpg
