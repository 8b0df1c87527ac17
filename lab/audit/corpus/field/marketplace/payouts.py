"""Payouts of a marketplace: Pub/Sub, Redis streams and a scheduler's queue."""

import json
import logging
import os
import random
import socket
import time
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone

import psycopg
import redis
import requests
from google.api_core.exceptions import AlreadyExists
from google.cloud import pubsub_v1
from psycopg.rows import dict_row

logger = logging.getLogger("payouts")
streams = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
publisher = pubsub_v1.PublisherClient()
subscriber = pubsub_v1.SubscriberClient()
BANK = os.environ["BANK_URL"]
DSN = os.environ["DSN"]


class Bank:
    def __init__(self, session: requests.Session | None = None) -> None:
        self.session = session or requests.Session()
        self.session.headers["Authorization"] = f"Bearer {os.environ['TOKEN']}"

    def send(self, payout_id: str, iban: str, cents: int) -> str:
        response = self.session.post(f"{BANK}/transfers", json={"iban": iban, "cents": cents, "ref": payout_id})
        response.raise_for_status()
        return response.json()["transfer"]

    def send_unsafe(self, iban: str, cents: int) -> str:
        response = self.session.post(f"{BANK}/transfers", json={"iban": iban, "cents": cents})  # bad: OG001
        return response.json()["transfer"]

    def balance(self) -> int:
        return self.session.get(f"{BANK}/balance").json()["cents"]


bank = Bank()


def reserve(connection: psycopg.Connection, payout_id: str) -> bool:
    cursor = connection.execute(
        "INSERT INTO payout_claims (payout_id, host) VALUES (%s, %s) ON CONFLICT (payout_id) DO NOTHING",
        (payout_id, socket.gethostname()),
    )
    connection.commit()
    return cursor.rowcount == 1


def on_payout(message) -> None:  # good: OG001, OG006, OG008
    payout = json.loads(message.data)
    with closing(psycopg.connect(DSN)) as connection:
        if not reserve(connection, payout["id"]):
            logger.info("payout %s is claimed", payout["id"])
            message.ack()
            return
        bank.send(payout["id"], payout["iban"], payout["cents"])
    message.ack()


def on_payout_unsafe(message) -> None:
    payout = json.loads(message.data)
    if bank.balance() < payout["cents"]:
        message.nack()
        return
    bank.send_unsafe(payout["iban"], payout["cents"])
    message.ack()


def on_payout_early(message) -> None:
    payout = json.loads(message.data)
    message.ack()  # bad: OG007
    with psycopg.connect(DSN) as connection:
        connection.execute("INSERT INTO payouts (id, cents) VALUES (%s, %s)", (payout["id"], payout["cents"]))


def on_payout_silent(message) -> None:
    payout = json.loads(message.data)
    with closing(psycopg.connect(DSN)) as connection:
        if not reserve(connection, payout["id"]):
            message.ack()
            return  # bad: OG006
        bank.send(payout["id"], payout["iban"], payout["cents"])
    message.ack()


def on_payout_unacked(message) -> None:
    payout = json.loads(message.data)
    with closing(psycopg.connect(DSN)) as connection:
        if not reserve(connection, payout["id"]):
            logger.info("payout %s is claimed", payout["id"])
            return  # bad: OG008
        bank.send(payout["id"], payout["iban"], payout["cents"])
    message.ack()


def subscribe_all() -> None:
    for path, callback in (
        ("projects/x/subscriptions/payouts", on_payout),
        ("projects/x/subscriptions/unsafe", on_payout_unsafe),
    ):
        subscriber.subscribe(path, callback=callback)
    subscriber.subscribe("projects/x/subscriptions/early", callback=on_payout_early)
    subscriber.subscribe("projects/x/subscriptions/silent", callback=on_payout_silent)
    subscriber.subscribe("projects/x/subscriptions/unacked", callback=on_payout_unacked)


def stream_worker(group: str, consumer: str) -> None:  # good: OG001, OG007
    while True:
        for _, entries in streams.xreadgroup(group, consumer, {"payouts": ">"}, count=10, block=5000):
            for entry_id, fields in entries:
                if streams.set(f"payout:{fields['payout_id']}", entry_id, nx=True):
                    bank.send(fields["payout_id"], fields["iban"], int(fields["cents"]))
                else:
                    logger.info("payout %s came again", fields["payout_id"])
                streams.xack("payouts", group, entry_id)


def stream_worker_noack(group: str, consumer: str) -> None:
    while True:
        batch = streams.xreadgroup(group, consumer, {"audit": ">"}, noack=True)  # bad: OG007
        for _, entries in batch:
            for _, fields in entries:
                logger.info("audit %s", fields)


def stream_worker_windowed(group: str, consumer: str) -> None:
    while True:
        for _, entries in streams.xreadgroup(group, consumer, {"fees": ">"}):
            for entry_id, fields in entries:
                fresh = streams.set(f"fee:{fields['fee_id']}", 1, nx=True, ex=60 * 60)  # bad: OG003
                if not fresh:
                    logger.info("fee %s came again", fields["fee_id"])
                    streams.xack("fees", group, entry_id)
                    continue
                publisher.publish("projects/x/topics/fees", json.dumps(fields).encode())
                streams.xack("fees", group, entry_id)


def handle_settlement(event: dict) -> None:
    with psycopg.connect(DSN, row_factory=dict_row) as connection:
        with connection.transaction():
            connection.execute("UPDATE settlements SET state = 'sent' WHERE id = %s", (event["id"],))
            publisher.publish("projects/x/topics/settled", event["id"].encode())  # bad: OG001, OG013


def handle_chargeback(event: dict) -> None:
    now = datetime.now(timezone.utc)
    with psycopg.connect(DSN) as connection:
        row = connection.execute(
            "SELECT id FROM seen_chargebacks WHERE id = %s AND at > %s", (event["id"], now - timedelta(hours=2))  # bad: OG003, OG005
        ).fetchone()
        if row is not None:
            logger.info("chargeback %s is known", event["id"])
            return
        requests.post(f"{BANK}/chargebacks", json=event, timeout=10)
        connection.execute("INSERT INTO seen_chargebacks (id) VALUES (%s)", (event["id"],))


def handle_invoice(event: dict) -> None:
    with suppress(AlreadyExists):
        requests.post(f"{BANK}/invoices", json=event, timeout=10)  # bad: OG001


def handle_fee(event: dict) -> None:
    delay = 1.0
    tries = 0
    if not streams.set(f"fee:{event['id']}", 1, nx=True):
        logger.info("fee %s came again", event["id"])
        return
    while tries < 5:
        try:
            requests.post(f"{BANK}/fees", json=event, timeout=10)  # bad: OG010
            return
        except requests.RequestException:
            tries += 1
            time.sleep(delay + random.random())
            delay *= 2
    raise RuntimeError("the bank cannot be reached")


def handle_statement(event: dict) -> None:  # good: OG010, OG012
    key = f"statement:{event['account']}:{event['month']}"
    for _ in range(3):
        try:
            requests.post(f"{BANK}/statements", json=event, headers={"Idempotency-Key": key}, timeout=10)
            return
        except requests.RequestException:
            time.sleep(1)
    raise RuntimeError("the bank cannot be reached")
