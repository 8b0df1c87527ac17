"""Background jobs of the freight office, one queue library after the other."""

from __future__ import annotations

import datetime as dt
import logging
import time
from contextlib import contextmanager

import dramatiq
import pytz
import redis
import requests
from arq import Retry
from arq.connections import RedisSettings
from celery import Celery
from huey import RedisHuey, crontab
from rq import Queue
from rq.decorators import job
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from .tables import Booking, HandledMessage, Session, engine

log = logging.getLogger(__name__)
app = Celery("freight", broker="amqp://")
huey = RedisHuey("freight")
cache = redis.Redis(host="cache")
queue = Queue(connection=cache)
CARRIER = "https://carrier.example/api"


@contextmanager
def session_scope():
    session = Session()
    try:
        yield session
        session.commit()
    except:
        session.rollback()
        raise
    finally:
        session.close()


def call_carrier(path: str, payload: dict, key: str | None = None) -> dict:
    headers = {"Idempotency-Key": key} if key else {}
    answer = requests.post(f"{CARRIER}/{path}", json=payload, headers=headers, timeout=5)
    answer.raise_for_status()
    return answer.json()


def tell_carrier(path: str, payload: dict) -> dict:
    answer = requests.post(f"{CARRIER}/{path}", json=payload, timeout=5)  # bad: OG001
    answer.raise_for_status()
    return answer.json()


def once(key: str) -> bool:
    won = cache.setnx(f"freight:{key}", int(time.time()))
    if not won:
        log.warning("%s was done before", key)
    return won


@app.task(bind=True, acks_late=True, max_retries=3)
def book_slot(self, booking_id: int):
    tell_carrier("slots", {"booking": booking_id})


@app.task(acks_late=True)
def book_slot_keyed(booking_id: int):  # good: OG001, OG009
    call_carrier("slots", {"booking": booking_id}, key=f"slot-{booking_id}")


@app.task(acks_late=True)
def book_slot_reserved(booking_id: int):  # good: OG001, OG006
    if not once(f"slot:{booking_id}"):
        return
    requests.post(f"{CARRIER}/slots", json={"booking": booking_id}, timeout=5)


@app.task(bind=True, acks_late=True)
def book_by_task_id(self, booking_id: int):
    if not cache.set(f"task:{self.request.id}:{self.request.retries}", 1, nx=True):  # bad: OG002
        log.info("again")
        return
    requests.post(f"{CARRIER}/slots", json={"booking": booking_id}, timeout=5)


@app.task(acks_late=False)  # bad: OG007
def weigh(booking_id: int):
    with session_scope() as session:
        session.execute(text("UPDATE bookings SET status = 'weighed' WHERE id = :id"), {"id": booking_id})


@app.task(acks_late=True)
def add_weight(booking_id: int, kilos: int):
    with engine.begin() as connection:
        connection.execute(text("UPDATE bookings SET weight = weight + :k WHERE id = :id"), {"k": kilos, "id": booking_id})  # bad: OG001


@app.task(acks_late=True)
def add_weight_once(message_key: str, booking_id: int, kilos: int):  # good: OG001, OG004
    with engine.begin() as connection:
        won = connection.execute(
            text("INSERT INTO handled_messages (source, message_key) VALUES ('scale', :m) ON CONFLICT DO NOTHING"),
            {"m": message_key},
        ).rowcount
        if not won:
            log.info("weight %s was added before", message_key)
            return
        connection.execute(text("UPDATE bookings SET weight = weight + :k WHERE id = :id"), {"k": kilos, "id": booking_id})


@app.task(acks_late=True)
def add_weight_apart(message_key: str, booking_id: int, kilos: int):
    try:
        with session_scope() as session:
            session.add(HandledMessage(source="scale", message_key=message_key))  # bad: OG004
    except IntegrityError:
        log.info("weight %s was added before", message_key)
        return
    with session_scope() as session:
        booking = session.get(Booking, booking_id, with_for_update=True)
        booking.weight += kilos


@app.task(acks_late=True)
def confirm(booking_id: int):
    with session_scope() as session:
        booking = session.scalars(select(Booking).where(Booking.id == booking_id)).one()
        if booking.status == "confirmed":  # bad: OG005
            log.info("booking %s is confirmed", booking.reference)
            return
        requests.post(f"{CARRIER}/confirmations", json={"reference": booking.reference}, timeout=5)  # bad: OG013
        booking.status = "confirmed"


@app.task(acks_late=True)
def confirm_locked(booking_id: int):  # good: OG005, OG013
    with session_scope() as session:
        booking = session.scalars(select(Booking).where(Booking.id == booking_id).with_for_update()).one()
        if booking.status != "new":
            log.info("booking %s is %s", booking.reference, booking.status)
            return
        booking.status = "confirming"
        reference = booking.reference
    call_carrier("confirmations", {"reference": reference}, key=f"confirm-{reference}")


@dramatiq.actor(max_retries=5)
def send_manifest(manifest_id: str):
    tell_carrier("manifests", {"id": manifest_id})


@dramatiq.actor(queue_name="customs")
def declare(declaration_id: str):  # good: OG001, OG006, OG008
    if not once(f"declare:{declaration_id}"):
        return
    try:
        requests.post(f"{CARRIER}/customs", json={"id": declaration_id}, timeout=5)
    except requests.RequestException:
        cache.delete(f"freight:declare:{declaration_id}")
        raise


@dramatiq.actor
def declare_quietly(declaration_id: str):
    if not once(f"declare:{declaration_id}"):
        return
    try:
        requests.post(f"{CARRIER}/customs", json={"id": declaration_id}, timeout=5)
    except Exception as error:  # bad: OG008
        log.error("declaration %s: %s", declaration_id, error)


@job("freight", connection=cache)
def print_label(parcel_id: str):
    for attempt in range(3):
        try:
            requests.post(f"{CARRIER}/labels", json={"parcel": parcel_id}, timeout=5)  # bad: OG001, OG010
            break
        except requests.Timeout:
            time.sleep(2**attempt)


def archive_label(parcel_id: str) -> None:  # good: OG001
    requests.put(f"{CARRIER}/labels/{parcel_id}/archive", timeout=5)


def remind(parcel_id: str) -> None:
    requests.post("https://sms.example/send", json={"parcel": parcel_id})  # bad: OG001


def enqueue_all(parcels: list[str]) -> None:
    for parcel in parcels:
        queue.enqueue(archive_label, parcel)
        queue.enqueue_in(dt.timedelta(hours=1), remind, parcel)


@huey.task(retries=2, retry_delay=10)
def invoice(booking_id: int):
    local = pytz.timezone("Europe/Berlin").localize(dt.datetime.strptime("2026-10-25 02:30", "%Y-%m-%d %H:%M"))  # bad: OG011
    tell_carrier("invoices", {"booking": booking_id, "at": local.isoformat()})


@huey.task()
def invoice_once(booking_id: int, created: float):  # good: OG001, OG011
    with huey.lock_task(f"invoice-{booking_id}"):
        at = dt.datetime.fromtimestamp(created, tz=dt.timezone.utc)
        call_carrier("invoices", {"booking": booking_id, "at": at.isoformat()}, key=f"invoice-{booking_id}")


@huey.periodic_task(crontab(minute="0"))
def tidy():
    with session_scope() as session:
        session.execute(text("DELETE FROM handled_messages WHERE at < now() - interval '90 days'"))


async def track(ctx: dict, parcel_id: str) -> None:
    tell_carrier("tracks", {"parcel": parcel_id})


async def track_once(ctx: dict, parcel_id: str) -> None:  # good: OG001, OG006
    first = await ctx["redis"].set(f"track:{parcel_id}", b"1", nx=True)
    if not first:
        log.info("parcel %s is tracked", parcel_id)
        return
    try:
        requests.post(f"{CARRIER}/tracks", json={"parcel": parcel_id}, timeout=5)
    except requests.ConnectionError as error:
        raise Retry(defer=5) from error


class WorkerSettings:
    functions = [track, track_once]
    redis_settings = RedisSettings(host="cache")
