"""Idempotency keys: one for the event, or one for each attempt."""

import logging
import secrets
import time
import uuid

import httpx
import redis
import requests
import stripe
from celery import shared_task
from fastapi import FastAPI, Header
from square import Square

app = FastAPI()
log = logging.getLogger(__name__)
r = redis.Redis()
square = Square(token="x")
BANK = "https://bank.example/charges"


def is_new(order_id):
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return False
    return True


@shared_task(acks_late=True)
def random_key(order_id):
    if is_new(order_id):
        stripe.Charge.create(amount=1, currency="eur", idempotency_key=str(uuid.uuid4()))  # bad: OG012


@shared_task(acks_late=True)
def random_header(order_id):
    if is_new(order_id):
        requests.post(BANK, json={"order": order_id}, headers={"Idempotency-Key": uuid.uuid4().hex})  # bad: OG012


@shared_task(acks_late=True)
def by_name(order_id):
    if not is_new(order_id):
        return
    key = secrets.token_hex(16)
    headers = {"Idempotency-Key": key}
    httpx.post(BANK, json={"order": order_id}, headers=headers)  # bad: OG012


@shared_task(acks_late=True)
def with_time(order_id):
    if is_new(order_id):
        stripe.Refund.create(charge="c", idempotency_key=f"{order_id}-{time.time()}")  # bad: OG012


@shared_task(acks_late=True)
def with_attempt(order_id):
    if not is_new(order_id):
        return
    for attempt in range(3):
        try:
            stripe.Charge.create(amount=1, currency="eur", idempotency_key=f"{order_id}-{attempt}")  # bad: OG012
            break
        except stripe.APIConnectionError:
            log.warning("once more")


@shared_task(bind=True, acks_late=True)
def with_retries(self, order_id):
    if is_new(order_id):
        stripe.Charge.create(amount=1, currency="eur", idempotency_key=f"{order_id}:{self.request.retries}")  # bad: OG012


def charge(order_id, key):
    return requests.post(BANK, json={"order": order_id}, headers={"Idempotency-Key": key})


@shared_task(acks_late=True)
def through_a_helper(order_id):
    if is_new(order_id):
        charge(order_id, str(uuid.uuid4()))  # bad: OG012


@shared_task(acks_late=True)
def square_random(order_id):
    if is_new(order_id):
        square.payments.create(source_id="x", idempotency_key=str(uuid.uuid4()), amount_money={"amount": 1})  # bad: OG012


# ---- the same for every attempt ------------------------------------------------------------------


@shared_task(acks_late=True)
def by_order(order_id):  # good: OG012
    stripe.Charge.create(amount=1, currency="eur", idempotency_key=f"charge-{order_id}")


@shared_task(acks_late=True)
def derived(order_id):  # good: OG012
    key = str(uuid.uuid5(uuid.NAMESPACE_URL, f"order/{order_id}"))
    stripe.Charge.create(amount=1, currency="eur", idempotency_key=key)


@app.post("/charges")
def callers_key(order: dict, idempotency_key: str = Header()):  # good: OG012
    return stripe.Charge.create(amount=order["amount"], currency="eur", idempotency_key=idempotency_key)


@shared_task(acks_late=True)
def stored_key(cursor, order_id):  # good: OG012
    key = str(uuid.uuid4())
    cursor.execute("INSERT INTO payment_claims (order_id, key) VALUES (%s, %s)", (order_id, key))
    stripe.Charge.create(amount=1, currency="eur", idempotency_key=key)


@shared_task(acks_late=True)
def random_reference(order_id):  # good: OG012
    trace = uuid.uuid4().hex
    stripe.Charge.create(amount=1, currency="eur", idempotency_key=f"o-{order_id}", metadata={"trace": trace})


def charge_order(order_id, key):
    return requests.post(BANK, json={"order": order_id}, headers={"Idempotency-Key": key})


@shared_task(acks_late=True)
def stable_through_a_helper(order_id):  # good: OG012
    charge_order(order_id, f"charge-{order_id}")


@shared_task(acks_late=True)
def versioned(order_id, version):  # good: OG012
    requests.post(BANK, json={"order": order_id}, headers={"Idempotency-Key": f"{order_id}:{version}"})


@shared_task(acks_late=True)
def from_a_row(session, order_id):  # good: OG012
    payment = session.get(dict, order_id)
    requests.post(BANK, json={"order": order_id}, headers={"Idempotency-Key": payment.key})
