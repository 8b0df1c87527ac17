"""Check, then act."""

import logging

import redis
import requests
import stripe
from celery import shared_task
from django.db import transaction
from fastapi import FastAPI
from sqlalchemy.orm import Session

from models import Order, ProcessedEvent

app = FastAPI()
log = logging.getLogger(__name__)
r = redis.Redis()
seen_ids = set()
BANK = "https://bank.example/charges"


@shared_task(acks_late=True)
def redis_get_then_set(order_id):
    if r.get(order_id):  # bad: OG005
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})
    r.set(order_id, 1)


@shared_task(acks_late=True)
def redis_set_before(order_id):
    if r.exists(order_id):  # bad: OG005
        log.info("repeat")
        return
    r.set(order_id, 1)
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def select_then_insert(cursor, order_id):
    cursor.execute("SELECT 1 FROM processed_orders WHERE id = %s", (order_id,))  # bad: OG005
    if cursor.fetchone() is not None:
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})
    cursor.execute("INSERT INTO processed_orders (id) VALUES (%s)", (order_id,))


@shared_task(acks_late=True)
def django_exists(event_id, payload):
    if ProcessedEvent.objects.filter(event_id=event_id).exists():  # bad: OG005
        log.info("repeat")
        return
    requests.post(BANK, json=payload)
    ProcessedEvent.objects.create(event_id=event_id)


@app.post("/hooks")
def orm_query(event: dict, db: Session):
    known = db.query(ProcessedEvent).filter(ProcessedEvent.id == event["id"]).first()  # bad: OG005
    if known:
        return {"status": "already processed"}
    requests.post(BANK, json=event)
    db.add(ProcessedEvent(id=event["id"]))
    db.commit()
    return {"status": "ok"}


@shared_task(acks_late=True)
def state_of_a_row(session: Session, order_id):
    order = session.get(Order, order_id)
    if order.status == "paid":  # bad: OG005
        log.info("paid already")
        return
    requests.post(BANK, json={"order": order_id})
    order.status = "paid"
    session.commit()


def handle_event(event, store):
    if store.is_processed(event["id"]):  # bad: OG005
        log.info("repeat")
        return
    requests.post(BANK, json=event)
    store.mark_processed(event["id"])


@shared_task(acks_late=True)
def in_memory(order_id):
    if order_id in seen_ids:  # bad: OG005
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})
    seen_ids.add(order_id)


@shared_task(acks_late=True)
def set_membership(order_id):
    if r.sismember("done", order_id):  # bad: OG005
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})
    r.sadd("done", order_id)


# ---- atomic, locked, or not a question of repeats ------------------------------------------------


@shared_task(acks_late=True)
def locked_row(session: Session, order_id):  # good: OG005
    order = session.query(Order).filter(Order.id == order_id).with_for_update().one()
    if order.status == "paid":
        log.info("paid already")
        return
    requests.post(BANK, json={"order": order_id})
    order.status = "paid"
    session.commit()


@shared_task(acks_late=True)
def django_locked(order_id):  # good: OG005
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        if order.paid:
            log.info("paid already")
            return
        order.paid = True
        order.save()
    stripe.Charge.create(amount=1, currency="eur", idempotency_key=f"order-{order_id}")


@shared_task(acks_late=True)
def insert_wins(cursor, order_id):  # good: OG005
    cursor.execute("INSERT INTO processed_orders (id) VALUES (%s) ON CONFLICT DO NOTHING", (order_id,))
    if not cursor.rowcount:
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def check_and_atomic(order_id):  # good: OG005
    if r.get(f"done:{order_id}"):
        log.info("repeat")
        return
    if not r.set(f"order:{order_id}", 1, nx=True):
        log.info("repeat at once")
        return
    requests.post(BANK, json={"order": order_id})
    r.set(f"done:{order_id}", 1)


@shared_task(acks_late=True)
def created_or_not(event_id, payload):  # good: OG005
    _, created = ProcessedEvent.objects.get_or_create(event_id=event_id)
    if not created:
        log.info("repeat")
        return
    requests.post(BANK, json=payload)


@shared_task(acks_late=True)
def under_a_lock(order_id):  # good: OG005
    with r.lock(f"order:{order_id}"):
        if r.get(order_id):
            log.info("repeat")
            return
        requests.post(BANK, json={"order": order_id})
        r.set(order_id, 1)


@shared_task(acks_late=True)
def with_a_key(order_id):  # good: OG005
    if r.get(order_id):
        log.info("repeat")
        return
    stripe.Charge.create(amount=1, currency="eur", idempotency_key=f"order-{order_id}")
    r.set(order_id, 1)


@shared_task(acks_late=True)
def advisory_lock(cursor, order_id):  # good: OG005
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", (order_id,))
    cursor.execute("SELECT 1 FROM processed_orders WHERE id = %s", (order_id,))
    if cursor.fetchone():
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})
    cursor.execute("INSERT INTO processed_orders (id) VALUES (%s)", (order_id,))
