"""What happens to an event, once. Django imports this module of every app at its start."""

import os
from typing import Any

from django.db import transaction
from shop.models import Booking, Payment

from oncegate import Once
from oncegate.contrib.django import gate
from oncegate.receiver import Receiver

SECRET = os.environ.get("SHOP_HOOK_SECRET", "whsec_c2VjcmV0LW9mLXRoZS1leGFtcGxlLXNob3A=")
refunds = Receiver.standard(gate, "refunds", secrets=[SECRET])


@gate.handler("bookings", key="{container}:{slot}", same_database=True)
def book(event: dict[str, Any]) -> str:
    """Writes to this database only: the row and the outcome are one commit."""
    return str(Booking.objects.create(container=event["container"], slot=event["slot"]).slot)


@gate.handler("orders", key="{order}")
def pay(event: dict[str, Any], once: Once) -> int:
    """May call others with once.effect; what it writes is committed with the outcome."""
    with transaction.atomic():
        payment = Payment.objects.create(order=event["order"], cents=event["cents"])
        once.commit(outcome=payment.cents)
    return int(payment.cents)


@refunds.handler(same_database=True)
def refund(event: dict[str, Any]) -> None:
    """A signed webhook; its view is in project/urls.py."""
    Payment.objects.create(order=event["payload"]["order"], cents=-event["payload"]["cents"])
