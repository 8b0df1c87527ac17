"""What the views call."""

import logging

import braintree
import requests
import stripe
from django.conf import settings
from django.core.mail import send_mail
from django.db import IntegrityError, transaction
from slack_sdk import WebClient

from .models import Order, WebhookDelivery

log = logging.getLogger(__name__)


class DuplicateDelivery(Exception):
    """The delivery was taken before."""


def register(event_id: str) -> None:
    try:
        with transaction.atomic():
            WebhookDelivery.objects.create(event_id=event_id)
    except IntegrityError as error:
        log.info("delivery %s came again", event_id)
        raise DuplicateDelivery(event_id) from error


class Warehouse:
    def __init__(self) -> None:
        self.http = requests.Session()
        self.http.headers["Authorization"] = settings.WAREHOUSE_TOKEN

    def ship(self, order: Order) -> None:
        self.http.post(settings.WAREHOUSE_URL, json={"order": order.number})

    def ship_bare(self, order: Order) -> None:
        self.http.post(settings.WAREHOUSE_URL, json={"order": order.number})

    def ship_inside(self, order: Order) -> None:
        self.http.post(settings.WAREHOUSE_URL, json={"order": order.number})


def capture(order: Order) -> None:
    stripe.PaymentIntent.capture(order.number, idempotency_key=f"capture:{order.number}")


def announce(text: str) -> None:
    WebClient(token=settings.SLACK).chat_postMessage(channel="#shop", text=text)


def thank(order: Order) -> None:
    send_mail("Thanks", order.number, "shop@example.com", ["x@y.z"])
