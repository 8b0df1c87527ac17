"""Celery tasks as a Django shop has them."""

import logging
from datetime import datetime

import requests
from celery import Task, shared_task
from celery.utils.log import get_task_logger
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import IntegrityError, transaction
from django.utils import timezone

from .models import Parcel, ParcelEvent, ProcessedWebhook

logger = get_task_logger(__name__)


class BaseTask(Task):
    autoretry_for = (requests.ConnectionError,)
    max_retries = 5
    retry_backoff = True

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        logger.error("%s failed: %s", task_id, exc)


@shared_task(base=BaseTask, bind=True, acks_late=True)
def print_label(self, parcel_id):
    parcel = Parcel.objects.get(pk=parcel_id)
    response = requests.post(settings.LABEL_URL, json={"parcel": parcel.number})  # bad: OG001
    response.raise_for_status()
    Parcel.objects.filter(pk=parcel_id).update(label_url=response.json()["url"])


@shared_task(acks_late=True)
def announce(parcel_id):  # good: OG001, OG005, OG013
    with transaction.atomic():
        parcel = Parcel.objects.select_for_update().get(pk=parcel_id)
        if parcel.announced_at:
            logger.info("parcel %s is announced already", parcel.number)
            return
        parcel.announced_at = timezone.now()
        parcel.save(update_fields=["announced_at"])
    requests.put(f"{settings.CARRIER_URL}/parcels/{parcel.number}", json={"ready": True})


@shared_task(acks_late=True)
def mail_tracking(parcel_id):
    parcel = Parcel.objects.get(pk=parcel_id)
    if parcel.mail_sent:  # bad: OG005
        logger.info("mailed already")
        return
    EmailMessage("Your parcel", parcel.number, to=[parcel.email]).send()
    parcel.mail_sent = True
    parcel.save()


@shared_task(acks_late=True)
def carrier_event(payload):
    try:
        with transaction.atomic():
            ProcessedWebhook.objects.create(external_id=payload["id"])
            when = datetime.strptime(payload["time"], "%d.%m.%Y %H:%M")  # bad: OG011
            ParcelEvent.objects.create(number=payload["number"], code=payload["code"], at=when)
    except IntegrityError:
        pass  # bad: OG006


@shared_task(acks_late=True)
def carrier_event_logged(payload):  # good: OG004, OG006
    try:
        with transaction.atomic():
            ProcessedWebhook.objects.create(external_id=payload["id"])
            ParcelEvent.objects.create(number=payload["number"], code=payload["code"])
    except IntegrityError:
        logger.info("event %s was here before", payload["id"])


@shared_task(acks_late=True)
@transaction.atomic
def hand_over(parcel_id):
    parcel = Parcel.objects.select_for_update().get(pk=parcel_id)
    if parcel.state != "packed":
        logger.info("parcel %s is %s", parcel.number, parcel.state)
        return
    parcel.state = "handed over"
    parcel.save()
    requests.post(f"{settings.CARRIER_URL}/handovers", json={"parcel": parcel.number})  # bad: OG013


@shared_task(acks_late=True)
def hand_over_later(parcel_id):  # good: OG013
    with transaction.atomic():
        updated = Parcel.objects.filter(pk=parcel_id, state="packed").update(state="handed over")
        if not updated:
            logger.info("parcel %s is not packed", parcel_id)
            return
        transaction.on_commit(lambda: _notify_carrier(parcel_id))


def _notify_carrier(parcel_id):
    requests.post(f"{settings.CARRIER_URL}/handovers", json={"parcel": parcel_id})


@shared_task
def nightly_report():
    count = Parcel.objects.filter(state="packed").count()
    logging.info("%s parcels wait", count)
