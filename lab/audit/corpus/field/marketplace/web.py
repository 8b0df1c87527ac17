"""The marketplace's web side: Starlette, Django REST framework, oncegate."""

import logging
import time
import uuid
from datetime import datetime

import stripe
from django.db import transaction
from django.utils.dateparse import parse_datetime
from oncegate import Gate
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import JSONResponse
from starlette.routing import Route

from .models import Listing, Order, ProcessedRequest
from .payouts import Bank

logger = logging.getLogger(__name__)
gate = Gate()
psp = gate.downstream("psp", honours_key="24h")


class CheckoutView(APIView):
    def post(self, request):  # good: OG001, OG009, OG012
        order = Order.objects.get(pk=request.data["order"])
        intent = stripe.PaymentIntent.create(
            amount=order.total, currency="eur", metadata={"order": order.pk}, idempotency_key=f"checkout-{order.pk}"
        )
        return Response({"secret": intent.client_secret}, status=status.HTTP_201_CREATED)


class QuickCheckoutView(APIView):
    def post(self, request):
        key = f"{request.user.pk}-{int(time.time())}"
        intent = stripe.PaymentIntent.create(amount=request.data["total"], currency="eur", idempotency_key=key)  # bad: OG012
        return Response({"secret": intent.client_secret})


class ListingViewSet(viewsets.ModelViewSet):
    queryset = Listing.objects.all()

    def create(self, request, *args, **kwargs):
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        with transaction.atomic():
            listing = serializer.save(owner=request.user)
            stripe.Product.create(name=listing.title, idempotency_key=f"listing-{listing.pk}")  # bad: OG013
        return Response(serializer.data, status=201)


@api_view(["POST"])
def seller_hook(request):
    with transaction.atomic():
        _, created = ProcessedRequest.objects.get_or_create(event_id=request.data["id"])
        if not created:
            return Response()  # bad: OG006
        Order.objects.filter(pk=request.data["order"]).update(seen=parse_datetime(request.data["at"]))  # bad: OG011
    return Response(status=204)


@api_view(["POST"])
def buyer_hook(request):
    ProcessedRequest.objects.create(event_id=request.data["id"])  # bad: OG004
    at = datetime.fromisoformat(request.data["at"])  # bad: OG011
    Order.objects.filter(pk=request.data["order"]).update(seen=at)
    return Response(status=204)


@api_view(["GET"])
def orders(request):
    return Response([order.pk for order in Order.objects.all()])


class Refunds(HTTPEndpoint):
    async def post(self, request):
        body = await request.json()
        stripe.Refund.create(payment_intent=body["intent"])  # bad: OG001, OG009
        return JSONResponse({"ok": True})


async def disputes(request):
    body = await request.json()
    try:
        stripe.Refund.create(payment_intent=body["intent"], idempotency_key=f"dispute-{body['id']}")
    except Exception:  # bad: OG008
        logger.exception("refund failed")
    return JSONResponse({"ok": True})


@gate.handler("sellers", key="{seller_id}:{revision}")
async def seller_changed(event, once):  # good: OG014
    await once.effect(psp, update_seller, event, name="update")


@gate.handler("buyers", key="{buyer_id}")
async def buyer_changed(event, once):
    stripe.Customer.create(email=event["email"], idempotency_key=event["buyer_id"])  # bad: OG014
    await once.step("log", note, event)


async def update_seller(event, idempotency_key=None):
    return stripe.Account.create(email=event["email"], idempotency_key=idempotency_key)


async def note(event):
    logger.info("buyer %s, trace %s", event["buyer_id"], uuid.uuid4())


class OrderSerializer(serializers.Serializer):
    id = serializers.CharField()


app = Starlette(routes=[Route("/refunds", Refunds), Route("/disputes", disputes, methods=["POST"])])
assert Bank
