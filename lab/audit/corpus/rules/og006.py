"""Repeats that leave a trace, and repeats that do not."""

import json
import logging

import redis
import requests
from celery import shared_task
from fastapi import FastAPI, Response
from kafka import KafkaConsumer
from prometheus_client import Counter
from psycopg.errors import UniqueViolation

from models import ProcessedEvent

app = FastAPI()
log = logging.getLogger(__name__)
r = redis.Redis()
REPEATS = Counter("repeats", "repeats")
BANK = "https://bank.example/charges"


@shared_task(acks_late=True)
def bare_return(order_id):
    if not r.set(order_id, 1, nx=True):
        return  # bad: OG006
    requests.post(BANK, json={"order": order_id})


def kafka_loop():
    consumer = KafkaConsumer("orders", group_id="g", enable_auto_commit=False)
    for msg in consumer:
        order = json.loads(msg.value)
        if not r.set(order["id"], 1, nx=True):
            continue  # bad: OG006
        requests.post(BANK, json=order)
        consumer.commit()


@shared_task(acks_late=True)
def swallowed(cursor, order_id):
    try:
        cursor.execute("INSERT INTO processed_orders (id) VALUES (%s)", (order_id,))
    except UniqueViolation:
        return  # bad: OG006
    requests.post(BANK, json={"order": order_id})


def on_order(ch, method, properties, body):
    order = json.loads(body)
    if not r.set(order["id"], 1, nx=True):
        ch.basic_ack(method.delivery_tag)
        return  # bad: OG006
    requests.post(BANK, json=order)
    ch.basic_ack(method.delivery_tag)


@app.post("/hooks")
def quiet_answer(event: dict):
    if not r.set(event["id"], 1, nx=True):
        return {"ok": True}  # bad: OG006
    requests.post(BANK, json=event)
    return {"ok": True}


@app.post("/hooks/empty")
def empty_answer(event: dict):
    if not r.set(event["id"], 1, nx=True):
        return Response(status_code=200)  # bad: OG006
    requests.post(BANK, json=event)
    return Response(status_code=200)


@shared_task(acks_late=True)
def not_created(event_id, payload):
    _, created = ProcessedEvent.objects.get_or_create(event_id=event_id)
    if not created:
        return None  # bad: OG006
    requests.post(BANK, json=payload)


def handle_message(message):
    _process(json.loads(message["Body"]))


def _process(order):
    if not r.set(order["id"], 1, nx=True):
        return  # bad: OG006
    requests.post(BANK, json=order)


@shared_task(acks_late=True)
def returns_true(cursor, order_id):
    cursor.execute("INSERT INTO processed_orders (id) VALUES (%s) ON CONFLICT DO NOTHING", (order_id,))
    if cursor.rowcount == 0:
        return True  # bad: OG006
    requests.post(BANK, json={"order": order_id})
    return True


# ---- a trace -------------------------------------------------------------------------------------


@shared_task(acks_late=True)
def logged(order_id):  # good: OG006
    if not r.set(order_id, 1, nx=True):
        log.info("repeat of %s", order_id)
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def counted(order_id):  # good: OG006
    if not r.set(order_id, 1, nx=True):
        REPEATS.inc()
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def recorded(cursor, order_id):  # good: OG006
    if not r.set(order_id, 1, nx=True):
        cursor.execute("INSERT INTO repeats (id) VALUES (%s)", (order_id,))
        return
    requests.post(BANK, json={"order": order_id})


@app.post("/hooks/told")
def told(event: dict):  # good: OG006
    if not r.set(event["id"], 1, nx=True):
        return {"status": "duplicate"}
    requests.post(BANK, json=event)
    return {"status": "ok"}


@app.post("/hooks/stored")
def stored(event: dict):  # good: OG006
    if not r.set(event["id"], 1, nx=True):
        result = r.hget("results", event["id"])
        return result
    answer = requests.post(BANK, json=event)
    r.hset("results", event["id"], answer.text)
    return answer.text


@shared_task(acks_late=True)
def raised(order_id):  # good: OG006
    if not r.set(order_id, 1, nx=True):
        raise ValueError(f"repeat of {order_id}")
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def other_kind(event):  # good: OG006
    if event["type"] != "order.created":
        return
    if not r.set(event["id"], 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json=event)


def _note_repeat(order_id):
    log.warning("repeat of %s", order_id)


@shared_task(acks_late=True)
def noted_by_a_helper(order_id):  # good: OG006
    if not r.set(order_id, 1, nx=True):
        _note_repeat(order_id)
        return
    requests.post(BANK, json={"order": order_id})


@shared_task(acks_late=True)
def printed(order_id):  # good: OG006
    if not r.set(order_id, 1, nx=True):
        print("repeat", order_id)
        return
    requests.post(BANK, json={"order": order_id})
