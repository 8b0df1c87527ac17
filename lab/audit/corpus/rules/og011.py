"""Times with and without an offset."""

import time
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from celery import shared_task
from dateutil import parser
from fastapi import FastAPI

app = FastAPI()


@shared_task(acks_late=True)
def iso(event, cursor):
    when = datetime.fromisoformat(event["at"])  # bad: OG011
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (when, event["id"]))


@shared_task(acks_late=True)
def utcnow(event, cursor):
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (datetime.utcnow(), event["id"]))  # bad: OG011


@shared_task(acks_late=True)
def pattern(event, cursor):
    when = datetime.strptime(event["at"], "%Y-%m-%d %H:%M:%S")  # bad: OG011
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (when, event["id"]))


@app.post("/hooks")
def stamp(event: dict):
    when = datetime.fromtimestamp(event["at"])  # bad: OG011
    return {"at": when.isoformat()}


@shared_task(acks_late=True)
def utc_stamp(event):
    return datetime.utcfromtimestamp(event["at"]).isoformat()  # bad: OG011


@shared_task(acks_late=True)
def guessed(event, cursor):
    when = parser.parse(event["at"])  # bad: OG011
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (when, event["id"]))


def _read(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # bad: OG011


@shared_task(acks_late=True)
def in_a_helper(event, cursor):
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (_read(event["at"]), event["id"]))


@shared_task(acks_late=True)
def local(event):
    return time.mktime(time.strptime(event["at"], "%Y-%m-%d"))  # bad: OG011


@shared_task(acks_late=True)
def mixed(event):
    if datetime.now() > event["until"]:  # bad: OG011
        raise ValueError("too late")


# ---- with an offset ------------------------------------------------------------------------------


@shared_task(acks_late=True)
def checked(event, cursor):  # good: OG011
    when = datetime.fromisoformat(event["at"])
    if when.tzinfo is None:
        raise ValueError("no offset")
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (when, event["id"]))


@shared_task(acks_late=True)
def aware_now(event, cursor):  # good: OG011
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (datetime.now(timezone.utc), event["id"]))


@shared_task(acks_late=True)
def doubled_hour(event, cursor):
    when = datetime.strptime(event["at"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=ZoneInfo("Europe/Oslo"))  # bad: OG011
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (when, event["id"]))


@shared_task(acks_late=True)
def with_zone(event, cursor):  # good: OG011
    when = datetime.strptime(event["at"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (when, event["id"]))


@shared_task(acks_late=True)
def with_offset(event):  # good: OG011
    return datetime.strptime(event["at"], "%Y-%m-%dT%H:%M:%S%z").isoformat()


@shared_task(acks_late=True)
def aware_stamp(event):  # good: OG011
    return datetime.fromtimestamp(event["at"], tz=timezone.utc).isoformat()


@shared_task(acks_late=True)
def only_a_date(event):  # good: OG011
    return date.fromisoformat(event["day"]).isoformat()


@shared_task(acks_late=True)
def elapsed():  # good: OG011
    started = time.monotonic()
    return time.monotonic() - started


@shared_task(acks_late=True)
def converted(event, cursor):  # good: OG011
    when = datetime.fromisoformat(event["at"]).astimezone(timezone.utc)
    cursor.execute("UPDATE orders SET at = %s WHERE id = %s", (when, event["id"]))


@shared_task(acks_late=True)
def later(event):  # good: OG011
    return (datetime.now(timezone.utc) + timedelta(days=1)).isoformat()


def not_reached():
    return datetime.utcnow()
