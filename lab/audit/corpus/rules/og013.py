"""Effects and transactions."""

import logging

import redis
import requests
import stripe
from celery import shared_task
from django.core.mail import send_mail
from django.db import transaction
from fastapi import FastAPI
from kafka import KafkaProducer

from db import Session, engine, pool
from models import Order, Outbox
from tasks import notify

app = FastAPI()
log = logging.getLogger(__name__)
r = redis.Redis()
producer = KafkaProducer()
BANK = "https://bank.example/charges"


def is_new(order_id):
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return False
    return True


@shared_task(acks_late=True)
def in_atomic(order_id):
    if not is_new(order_id):
        return
    with transaction.atomic():
        Order.objects.filter(pk=order_id).update(note="x")
        requests.post(BANK, json={"order": order_id})  # bad: OG013


@shared_task(acks_late=True)
@transaction.atomic
def decorated(order_id, email):
    if not is_new(order_id):
        return
    Order.objects.filter(pk=order_id).update(note="x")
    send_mail("Paid", "Thanks", "shop@example.com", [email])  # bad: OG013


@shared_task(acks_late=True)
def in_session(order_id):
    if not is_new(order_id):
        return
    with Session.begin() as session:
        session.add(Order(id=order_id))
        stripe.Charge.create(amount=1, currency="eur", idempotency_key=f"o-{order_id}")  # bad: OG013


@shared_task(acks_late=True)
def in_engine(order_id):
    if not is_new(order_id):
        return
    with engine.begin() as conn:
        conn.execute("UPDATE orders SET note = 'x' WHERE id = 1")
        producer.send("orders", order_id)  # bad: OG013


async def handle_event(event):
    if not is_new(event["id"]):
        return
    async with pool.acquire() as conn:
        async with conn.transaction():
            await conn.execute("INSERT INTO orders (id) VALUES ($1)", event["id"])
            requests.post(BANK, json=event)  # bad: OG013


@shared_task(acks_late=True)
def enqueued(order_id):
    with transaction.atomic():
        Order.objects.filter(pk=order_id).update(note="x")
        notify.delay(order_id)  # bad: OG013


def _call(order_id):
    requests.post(BANK, json={"order": order_id})  # bad: OG013


@shared_task(acks_late=True)
def in_a_helper(order_id):
    if not is_new(order_id):
        return
    with transaction.atomic():
        Order.objects.filter(pk=order_id).update(note="x")
        _call(order_id)


@shared_task(acks_late=True)
def rolled_back(session, order_id):
    if not is_new(order_id):
        return
    try:
        session.add(Order(id=order_id))
        requests.post(BANK, json={"order": order_id})  # bad: OG013
        session.commit()
    except Exception:
        session.rollback()
        raise


# ---- after the commit ----------------------------------------------------------------------------


@shared_task(acks_late=True)
def after_block(order_id):  # good: OG013
    if not is_new(order_id):
        return
    with transaction.atomic():
        Order.objects.filter(pk=order_id).update(note="x")
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def on_commit(order_id):  # good: OG013
    if not is_new(order_id):
        return
    with transaction.atomic():
        Order.objects.filter(pk=order_id).update(note="x")
        transaction.on_commit(lambda: requests.post(BANK, json={"order": order_id}))


@shared_task(acks_late=True)
def outbox(order_id):  # good: OG013
    with Session.begin() as session:
        session.add(Order(id=order_id))
        session.add(Outbox(topic="orders", body=order_id))


@shared_task(acks_late=True)
def before_block(order_id):  # good: OG013
    if not is_new(order_id):
        return
    answer = requests.post(BANK, json={"order": order_id})
    with transaction.atomic():
        Order.objects.filter(pk=order_id).update(note=answer.text)


@shared_task(acks_late=True)
def reads_inside(order_id):  # good: OG013
    with transaction.atomic():
        price = requests.get("https://prices.example").text
        Order.objects.filter(pk=order_id).update(note=price)


@shared_task(acks_late=True)
def delayed_on_commit(order_id):  # good: OG013
    with transaction.atomic():
        Order.objects.filter(pk=order_id).update(note="x")
        transaction.on_commit(lambda: notify.delay(order_id))


@shared_task(acks_late=True)
def committed_first(session, order_id):  # good: OG013
    if not is_new(order_id):
        return
    session.add(Order(id=order_id))
    session.commit()
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def between_blocks(order_id):  # good: OG013
    if not is_new(order_id):
        return
    with engine.begin() as conn:
        conn.execute("UPDATE orders SET note = 'begun' WHERE id = 1")
    requests.post(BANK, json={"order": order_id})
    with engine.begin() as conn:
        conn.execute("UPDATE orders SET note = 'done' WHERE id = 1")
