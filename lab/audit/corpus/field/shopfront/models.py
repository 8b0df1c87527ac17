"""Models of the shop."""

from django.db import models


class Order(models.Model):
    number = models.CharField(max_length=20, unique=True)
    status = models.CharField(max_length=20)
    paid_at = models.DateTimeField(null=True)
    loyalty = models.IntegerField(default=0)


class WebhookDelivery(models.Model):
    event_id = models.CharField(max_length=80, unique=True)
    received_at = models.DateTimeField(auto_now_add=True)


class OutboxMessage(models.Model):
    topic = models.CharField(max_length=80)
    body = models.JSONField()
