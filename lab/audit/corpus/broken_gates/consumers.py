"""The mistakes of the broken-gate suite that show in a consumer's code, each as a consumer."""

import logging
import uuid

import redis
import requests
from celery import shared_task

log = logging.getLogger(__name__)
r = redis.Redis()
processed_ids = set()
BANK = "https://bank.example/charges"


@shared_task(acks_late=True)
def FiveMinuteStore(order):
    if not r.set(order["id"], 1, nx=True, ex=300):  # bad: OG003
        log.info("repeat")
        return
    requests.post(BANK, json=order)


@shared_task(bind=True, acks_late=True)
def TransportKey(self, order):
    if not r.set(self.request.id, 1, nx=True):  # bad: OG002
        log.info("repeat")
        return
    requests.post(BANK, json=order)


@shared_task(acks_late=True)
def CheckThenInsert(order):
    if r.get(order["id"]):  # bad: OG005
        log.info("repeat")
        return
    r.set(order["id"], 1)
    requests.post(BANK, json=order)


@shared_task(acks_late=True)
def InsertAfterEffect(cursor, order):
    cursor.execute("SELECT 1 FROM processed_orders WHERE id = %s", (order["id"],))  # bad: OG005
    if cursor.fetchone():
        log.info("repeat")
        return
    requests.post(BANK, json=order)
    cursor.execute("INSERT INTO processed_orders (id) VALUES (%s)", (order["id"],))


@shared_task(acks_late=True)
def KeysInMemory(order):
    if order["id"] in processed_ids:
        log.info("repeat")
        return
    processed_ids.add(order["id"])
    requests.post(BANK, json=order)  # bad: OG001


@shared_task(acks_late=True)
def KeyNotPassedOn(order):
    if not r.set(order["id"], 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json=order, headers={"Idempotency-Key": str(uuid.uuid4())})  # bad: OG012


@shared_task(acks_late=True)
def FailureIsHarmless(order):
    if not r.set(order["id"], 1, nx=True):
        log.info("repeat")
        return
    for _ in range(3):
        try:
            requests.post(BANK, json=order)  # bad: OG010
            break
        except requests.RequestException:
            log.info("it failed, so nothing happened")


def AcknowledgeFirst(ch, method, properties, body):
    ch.basic_ack(method.delivery_tag)  # bad: OG007
    if not r.set(body["id"], 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json=body)


def AcknowledgeAlways(ch, method, properties, body):
    try:
        if not r.set(body["id"], 1, nx=True):
            log.info("repeat")
            return
        requests.post(BANK, json=body)
    except Exception:  # bad: OG008
        log.exception("failed")
    finally:
        ch.basic_ack(method.delivery_tag)


@shared_task(acks_late=True)
def RecordInItsOwnTransaction(conn, order):
    conn.execute("INSERT INTO processed_orders (id) VALUES (%s)", (order["id"],))  # bad: OG004
    conn.commit()
    conn.execute("UPDATE stock SET amount = %s WHERE sku = %s", (order["amount"], order["sku"]))
    conn.commit()
