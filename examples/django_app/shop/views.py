"""A view that admits an event, and a plain view behind the Idempotency-Key middleware."""

import json

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from shop.models import Booking, Payment

from oncegate import Verdict
from oncegate.contrib.django import gate


@csrf_exempt
def bookings(request: HttpRequest) -> JsonResponse:
    """POST books a slot; GET lists what is booked."""
    if request.method == "POST":
        admission = gate.admit_sync("bookings", json.loads(request.body))
        status = {Verdict.RUN: 201, Verdict.REPLAY: 200}.get(admission.verdict, 409)
        return JsonResponse({"slot": admission.value, "replay": admission.replay}, status=status)
    return JsonResponse({"bookings": list(Booking.objects.values_list("container", "slot"))})


@csrf_exempt
def payments(request: HttpRequest) -> JsonResponse:
    """Behind the Idempotency-Key middleware: a plain view, carried out once for each key."""
    body = json.loads(request.body)
    payment = Payment.objects.create(order=body["order"], cents=body["cents"])
    return JsonResponse({"payment": payment.pk}, status=201)


def caller(request: HttpRequest) -> str | None:
    """Whose request it is; with AuthenticationMiddleware the default does this."""
    customer: str | None = request.headers.get("X-Shop-Customer")
    return customer


def is_payment(request: HttpRequest) -> bool:
    """Only payments take a key here."""
    return str(request.path) == "/payments"
