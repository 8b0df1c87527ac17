"""A Django project in one file: a booking and its event's outcome commit in one transaction."""

import json
import os
import sys
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

from oncegate import Gate, Once, Verdict

DATABASE = os.environ.get("SHOP_DATABASE", "shop.sqlite3")
if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1", "testserver"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": DATABASE,
                # As durable as the ledger: the commit of this connection is also the commit of the outcome.
                "OPTIONS": {"init_command": "PRAGMA synchronous = FULL;", "transaction_mode": "IMMEDIATE"},
            }
        },
        ROOT_URLCONF=__name__,
    )
    django.setup()

gate = Gate(f"sqlite:///{DATABASE}")  # the ledger is in the same file


@gate.handler("bookings", key="{container}:{slot}")
def book(event: dict[str, Any], once: Once) -> None:
    """Stores one booking, once."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO booking VALUES (%s, %s)", [event["container"], event["slot"]])
        once.commit(tx=connection, outcome=event["slot"])


def bookings(request: HttpRequest) -> JsonResponse:
    """POST books a slot; GET lists what is booked."""
    if request.method == "POST":
        admission = gate.admit_sync("bookings", json.loads(request.body))
        status = {Verdict.RUN: 201, Verdict.REPLAY: 200}.get(admission.verdict, 409)
        return JsonResponse({"slot": admission.value, "replay": admission.replay}, status=status)
    with connection.cursor() as cursor:
        cursor.execute("SELECT container, slot FROM booking ORDER BY 1")
        return JsonResponse({"bookings": cursor.fetchall()})


def create_tables() -> None:
    """What a migration does in a larger project."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS booking (container text, slot text)")


urlpatterns = [path("bookings", bookings)]
application = get_wsgi_application()

if __name__ == "__main__":
    from wsgiref.simple_server import make_server

    create_tables()
    with make_server("127.0.0.1", int(sys.argv[1]), application) as server:
        server.serve_forever()
