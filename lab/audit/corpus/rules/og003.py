"""Windows of time."""

import logging
import time
from datetime import datetime, timedelta, timezone

import boto3
import redis
import requests
from cachetools import TTLCache
from celery import shared_task
from django.core.cache import cache
from sqlalchemy import select

from models import ProcessedEvent

log = logging.getLogger(__name__)
r = redis.Redis()
recent = TTLCache(maxsize=10_000, ttl=300)
last_seen = {}
sqs = boto3.client("sqs")
BANK = "https://bank.example/charges"
WEEKS = 60 * 60 * 24 * 30


@shared_task(acks_late=True)
def five_minutes(order_id):
    if not r.set(order_id, 1, nx=True, ex=300):  # bad: OG003
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def one_day(order_id):
    fresh = r.set(order_id, 1, nx=True, ex=timedelta(days=1))  # bad: OG003
    if not fresh:
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def sql_window(cursor, order_id):
    cursor.execute(  # bad: OG003, OG005
        "SELECT 1 FROM processed_orders WHERE order_id = %s AND created_at > now() - interval '1 hour'", (order_id,)
    )
    if cursor.fetchone():
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})
    cursor.execute("INSERT INTO processed_orders (order_id) VALUES (%s)", (order_id,))


@shared_task(acks_late=True)
def ttl_cache(order_id):
    if order_id in recent:  # bad: OG003
        log.info("repeat")
        return
    recent[order_id] = True
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def django_default(order_id):
    if not cache.add(f"order:{order_id}", 1):  # bad: OG003
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def django_hour(order_id):
    if not cache.add(f"order:{order_id}", 1, timeout=3600):  # bad: OG003
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def orm_window(session, order_id):
    cutoff = datetime.now(timezone.utc) - timedelta(minutes=10)
    seen = session.scalar(select(ProcessedEvent).where(ProcessedEvent.id == order_id, ProcessedEvent.at > cutoff))  # bad: OG003, OG005
    if seen:
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})
    session.add(ProcessedEvent(id=order_id))
    session.commit()


@shared_task(acks_late=True)
def compared(order_id):
    if order_id in last_seen and time.time() - last_seen[order_id] < 600:  # bad: OG003
        log.info("repeat")
        return
    last_seen[order_id] = time.time()
    requests.post(BANK, json={"order": order_id})  # bad: OG001


def handle_event(event):
    sqs.send_message(  # bad: OG003
        QueueUrl="https://sqs/x.fifo", MessageBody="x", MessageGroupId="g", MessageDeduplicationId=event["id"]
    )


# ---- long enough, or not a window ----------------------------------------------------------------


@shared_task(acks_late=True)
def ninety_days(order_id):  # good: OG003
    if not r.set(order_id, 1, nx=True, ex=90 * 86400):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def named_month(order_id):  # good: OG003
    if not r.set(order_id, 1, nx=True, ex=WEEKS):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def no_limit(order_id):  # good: OG003
    if not r.setnx(order_id, 1):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def django_forever(order_id):  # good: OG003
    if not cache.add(f"order:{order_id}", 1, timeout=None):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def lock_and_record(cursor, order_id):  # good: OG003
    if not r.set(f"lock:{order_id}", 1, nx=True, ex=30):
        raise RuntimeError("busy")
    cursor.execute("INSERT INTO processed_orders (order_id) VALUES (%s)", (order_id,))
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def too_old(order_id, sent_at):  # good: OG003
    if datetime.now(timezone.utc) - datetime.fromtimestamp(sent_at, timezone.utc) > timedelta(days=3):
        raise ValueError("too old to be carried out")
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def sql_without_window(cursor, order_id):  # good: OG003
    cursor.execute("INSERT INTO processed_orders (order_id, at) VALUES (%s, now()) ON CONFLICT DO NOTHING", (order_id,))
    if cursor.rowcount == 0:
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def cached_price(sku):  # good: OG003
    price = cache.get(f"price:{sku}")
    if price is None:
        price = requests.get(f"https://prices.example/{sku}").text
        cache.set(f"price:{sku}", price, timeout=300)
    return price
