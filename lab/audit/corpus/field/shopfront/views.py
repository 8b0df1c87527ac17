"""Django views and class-based views."""

import json
import logging
from datetime import datetime, timedelta

from django.core.cache import cache
from django.db import transaction
from django.db.models import F
from django.http import HttpResponse, HttpResponseBadRequest, JsonResponse
from django.urls import path
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView

from .models import Order, OutboxMessage, WebhookDelivery
from .services import DuplicateDelivery, Warehouse, announce, capture, register, thank

logger = logging.getLogger(__name__)
warehouse = Warehouse()


@csrf_exempt
@require_POST
def paid(request):
    event = json.loads(request.body)
    order = Order.objects.get(number=event["order"])
    warehouse.ship_bare(order)  # bad: OG001
    return HttpResponse(status=204)


@csrf_exempt
@require_POST
def paid_once(request):  # good: OG001, OG006, OG013
    event = json.loads(request.body)
    try:
        register(event["id"])
    except DuplicateDelivery:
        return JsonResponse({"status": "duplicate"})
    warehouse.ship(Order.objects.get(number=event["order"]))
    return HttpResponse(status=204)


@csrf_exempt
def paid_cached(request):
    event = json.loads(request.body)
    if not cache.add(f"paid:{event['id']}", True, timeout=3600):  # bad: OG003
        logger.info("%s again", event["id"])
        return HttpResponse(status=200)
    warehouse.ship(Order.objects.get(number=event["order"]))
    return HttpResponse(status=204)


@csrf_exempt
def paid_recently(request):
    event = json.loads(request.body)
    since = timezone.now() - timedelta(hours=12)
    if WebhookDelivery.objects.filter(event_id=event["id"], received_at__gte=since).exists():  # bad: OG003
        logger.info("%s again", event["id"])
        return HttpResponse(status=200)
    WebhookDelivery.objects.create(event_id=event["id"])
    warehouse.ship(Order.objects.get(number=event["order"]))
    return HttpResponse(status=204)


@method_decorator(csrf_exempt, name="dispatch")
class CaptureView(View):
    """Captures a payment; Stripe recognises repeats."""

    def post(self, request, *args, **kwargs):  # good: OG001, OG009, OG012
        event = json.loads(request.body)
        capture(Order.objects.get(number=event["order"]))
        return JsonResponse({})


class AnnounceView(APIView):
    def post(self, request):
        announce(request.data["text"])  # bad: OG001
        return Response(status=201)


class LoyaltyView(APIView):
    def post(self, request, format=None):
        Order.objects.filter(number=request.data["order"]).update(loyalty=F("loyalty") + request.data["points"])  # bad: OG001
        return Response(status=200)


class LoyaltyOnceView(APIView):
    def post(self, request, format=None):  # good: OG001, OG004
        with transaction.atomic():
            _, created = WebhookDelivery.objects.get_or_create(event_id=request.data["event_id"])
            if not created:
                logger.info("points of %s are given", request.data["event_id"])
                return Response(status=200)
            Order.objects.filter(number=request.data["order"]).update(loyalty=F("loyalty") + request.data["points"])
        return Response(status=200)


class LoyaltyLateView(APIView):
    def post(self, request, format=None):
        event_id = request.data["event_id"]
        with transaction.atomic():
            Order.objects.filter(number=request.data["order"]).update(loyalty=F("loyalty") + request.data["points"])  # bad: OG001
        WebhookDelivery.objects.create(event_id=event_id)  # bad: OG004
        return Response(status=200)


@api_view(["POST"])
@transaction.atomic
def close(request):
    order = Order.objects.select_for_update().get(number=request.data["order"])
    if order.status == "closed":
        logger.info("order %s is closed", order.number)
        return Response({"status": "closed"})
    order.status = "closed"
    order.save(update_fields=["status"])
    warehouse.ship_inside(order)  # bad: OG013
    return Response({"status": "closed"})


@api_view(["POST"])
def close_outbox(request):  # good: OG001, OG013
    with transaction.atomic():
        order = Order.objects.select_for_update().get(number=request.data["order"])
        if order.status == "closed":
            logger.info("order %s is closed", order.number)
            return Response({"status": "closed"})
        order.status = "closed"
        order.save(update_fields=["status"])
        OutboxMessage.objects.create(topic="closed", body={"order": order.number})
    return Response({"status": "closed"})


@api_view(["POST"])
def close_after(request):  # good: OG013
    with transaction.atomic():
        order = Order.objects.select_for_update().get(number=request.data["order"])
        if order.status == "closed":
            return Response({"status": "closed"})  # bad: OG006
        order.status = "closed"
        order.save(update_fields=["status"])
        transaction.on_commit(lambda: warehouse.ship(order))
    return Response({"status": "closed"})


@csrf_exempt
def thank_you(request):
    event = json.loads(request.body)
    order = Order.objects.get(number=event["order"])
    paid_at = parse_datetime(event["paid_at"])  # bad: OG011
    Order.objects.filter(pk=order.pk).update(paid_at=paid_at)
    thank(order)  # bad: OG001
    return HttpResponse()


@csrf_exempt
def stamp(request):  # good: OG011
    event = json.loads(request.body)
    at = datetime.fromisoformat(event["at"])
    if timezone.is_naive(at):
        return HttpResponseBadRequest("no offset")
    Order.objects.filter(number=event["order"]).update(paid_at=at)
    return HttpResponse()


urlpatterns = [
    path("paid", paid),
    path("paid/once", paid_once),
    path("paid/cached", paid_cached),
    path("paid/recently", paid_recently),
    path("capture", CaptureView.as_view()),
    path("announce", AnnounceView.as_view()),
    path("loyalty", LoyaltyView.as_view()),
    path("loyalty/once", LoyaltyOnceView.as_view()),
    path("loyalty/late", LoyaltyLateView.as_view()),
    path("close", close),
    path("close/outbox", close_outbox),
    path("close/after", close_after),
    path("thanks", thank_you),
    path("stamp", stamp),
]
