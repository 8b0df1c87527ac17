"""Celery, dramatiq and Huey in a notification service."""

from __future__ import annotations

import hashlib
import logging
import random
import smtplib
import uuid
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from email.mime.text import MIMEText
from zoneinfo import ZoneInfo

import backoff
import dramatiq
import httpx
import psycopg
import requests
import stamina
from celery import Celery, Task
from celery.exceptions import MaxRetriesExceededError
from dateutil import parser as dateparser
from django_redis import get_redis_connection
from dramatiq.middleware import CurrentMessage
from huey.contrib.djhuey import db_task, task as huey_task
from redis import Redis
from redis.lock import Lock
from sendgrid import SendGridAPIClient

app = Celery("notices")
logger = logging.getLogger(__name__)
redis_client: Redis = Redis()
API = "https://push.example/v2"


class NoticeTask(Task):
    """A base that keeps a connection."""

    acks_late = True
    _db = None

    @property
    def db(self) -> psycopg.Connection:
        if self._db is None:
            self._db = psycopg.connect("dbname=notices")
        return self._db


def digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


@contextmanager
def exclusive(name: str):
    lock = redis_client.lock(f"lock:{name}", timeout=30)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@app.task(base=NoticeTask, bind=True)
def push(self, user_id: str, text: str):
    requests.post(f"{API}/push", json={"user": user_id, "text": text}, timeout=3)  # bad: OG001


@app.task(base=NoticeTask, bind=True)
def push_once(self, notice_id: str, user_id: str, text: str):  # good: OG001, OG002, OG006
    with self.db.transaction():
        cur = self.db.execute(
            "insert into notices_sent (digest) values (%s) on conflict do nothing", (digest(notice_id, user_id),)
        )
    if cur.rowcount == 0:
        logger.info("notice %s was pushed", notice_id)
        return
    requests.post(f"{API}/push", json={"user": user_id, "text": text}, timeout=3)


@app.task(base=NoticeTask, bind=True)
def push_with_random(self, user_id: str, text: str):
    nonce = random.randint(0, 2**31)
    requests.post(  # bad: OG012
        f"{API}/push", json={"user": user_id, "text": text}, headers={"Idempotency-Key": f"{user_id}-{nonce}"}, timeout=3
    )


@app.task(base=NoticeTask, bind=True, max_retries=4)
def push_per_retry(self, notice_id: str, text: str):
    key = digest(notice_id, str(self.request.retries))
    try:
        requests.post(f"{API}/push", json={"text": text}, headers={"Idempotency-Key": key}, timeout=3)  # bad: OG012
    except requests.RequestException as exc:
        raise self.retry(exc=exc, countdown=2**self.request.retries)


@app.task(base=NoticeTask, bind=True, max_retries=4)
def push_same_key(self, notice_id: str, text: str):  # good: OG001, OG010, OG012
    try:
        requests.post(f"{API}/push", json={"text": text}, headers={"Idempotency-Key": digest(notice_id)}, timeout=3)
    except requests.RequestException as exc:
        try:
            raise self.retry(exc=exc, countdown=2**self.request.retries)
        except MaxRetriesExceededError:
            logger.error("gave up on %s", notice_id)
            raise


@app.task(base=NoticeTask, bind=True)
def mail(self, notice_id: str, to: str):
    row = self.db.execute("select sent_at from mails where notice_id = %s", (notice_id,)).fetchone()  # bad: OG005
    if row and row[0]:
        logger.info("mail of %s was sent", notice_id)
        return
    message = MIMEText("hello")
    with smtplib.SMTP_SSL("smtp.example") as smtp:
        smtp.sendmail("a@b.c", [to], message.as_string())
    self.db.execute("update mails set sent_at = now() where notice_id = %s", (notice_id,))
    self.db.commit()


@app.task(base=NoticeTask, bind=True)
def mail_claimed(self, notice_id: str, to: str):  # good: OG001, OG005, OG006
    claimed = self.db.execute(
        "update mails set state = 'sending' where notice_id = %s and state = 'new' returning notice_id", (notice_id,)
    ).fetchone()
    self.db.commit()
    if claimed is None:
        logger.info("mail of %s is taken", notice_id)
        return
    with smtplib.SMTP_SSL("smtp.example") as smtp:
        smtp.sendmail("a@b.c", [to], "hello")


@app.task(base=NoticeTask, bind=True)
def mail_recent(self, notice_id: str, to: str):
    known = self.db.execute(
        "select 1 from mail_log where notice_id = %s and created_at > now() - interval '1 hour'", (notice_id,)  # bad: OG003, OG005
    ).fetchone()
    if known:
        logger.info("recent")
        return
    self.db.execute("insert into mail_log (notice_id) values (%s)", (notice_id,))
    self.db.commit()
    SendGridAPIClient("k").send({"to": to})


@app.task(base=NoticeTask)
def reminder(event: dict):
    due = dateparser.parse(event["due"])  # bad: OG011
    local = datetime.strptime(event["local"], "%Y-%m-%d %H:%M").replace(tzinfo=ZoneInfo("Europe/Vienna"))  # bad: OG011
    logger.info("%s %s", due, local)


@app.task(base=NoticeTask)
def reminder_aware(event: dict):  # good: OG011
    due = dateparser.isoparse(event["due"])
    if due.tzinfo is None:
        raise ValueError("no offset")
    utc = datetime.strptime(event["stamp"], "%Y-%m-%dT%H:%M:%S%z")
    fold = datetime.fromisoformat(event["local"]).replace(tzinfo=ZoneInfo("Europe/Vienna"), fold=1)
    logger.info("%s %s %s", due, utc, fold)


@dramatiq.actor(max_retries=3)
@stamina.retry(on=httpx.HTTPError, attempts=3)
def webhook_out(url: str, body: dict):
    httpx.post(url, json=body).raise_for_status()  # bad: OG001, OG010


@dramatiq.actor
def webhook_by_message(url: str, body: dict):
    message = CurrentMessage.get_current_message()
    if not redis_client.set(f"out:{message.message_id}", "1", nx=True):  # bad: OG002
        logger.info("again")
        return
    httpx.post(url, json=body)


@backoff.on_exception(backoff.expo, requests.exceptions.ConnectTimeout, max_tries=5)
def _deliver(url: str, body: dict) -> None:
    requests.post(url, json=body)


@dramatiq.actor
def webhook_connect_only(delivery_id: str, url: str, body: dict):  # good: OG001, OG010
    if not redis_client.setnx(f"delivery:{delivery_id}", "1"):
        logger.info("delivery %s went out", delivery_id)
        return
    _deliver(url, body)


@dramatiq.actor
def webhook_swallowed(delivery_id: str, url: str, body: dict):
    if not redis_client.setnx(f"delivery:{delivery_id}", "1"):
        logger.info("delivery %s went out", delivery_id)
        return
    with suppress(Exception):  # bad: OG008
        requests.post(url, json=body, timeout=2)


@dramatiq.actor
def webhook_recorded(delivery_id: str, url: str, body: dict):  # good: OG008
    if not redis_client.setnx(f"delivery:{delivery_id}", "1"):
        logger.info("delivery %s went out", delivery_id)
        return
    try:
        requests.post(url, json=body, timeout=2)
    except Exception:
        logger.exception("delivery %s", delivery_id)
        redis_client.rpush("failed-deliveries", delivery_id)


@huey_task(retries=3)
def badge(user_id: str):
    with exclusive(user_id):
        httpx.post(f"{API}/badges", json={"user": user_id})  # bad: OG001


@db_task()
def badge_window(user_id: str, badge_id: str):
    conn = get_redis_connection("default")
    if not conn.set(f"badge:{badge_id}", "1", nx=True, ex=int(timedelta(hours=2).total_seconds())):  # bad: OG003
        logger.info("badge %s was given", badge_id)
        return
    httpx.post(f"{API}/badges", json={"user": user_id})


@db_task()
def badge_silent(user_id: str, badge_id: str):
    conn = get_redis_connection("default")
    if not conn.set(f"badge:{badge_id}", "1", nx=True):
        return  # bad: OG006
    httpx.post(f"{API}/badges", json={"user": user_id})


@db_task()
def badge_counted(user_id: str, badge_id: str):  # good: OG001, OG006
    conn = get_redis_connection("default")
    if conn.set(f"badge:{badge_id}", "1", nx=True):
        httpx.post(f"{API}/badges", json={"user": user_id})
    else:
        logger.info("badge %s was given", badge_id)


@app.task(acks_late=True)
def trace(user_id: str):  # good: OG001, OG012
    trace_id = uuid.uuid4().hex
    started = datetime.now(timezone.utc)
    requests.get(f"{API}/users/{user_id}", headers={"X-Trace": trace_id})
    logger.info("%s took %s", trace_id, datetime.now(timezone.utc) - started)
