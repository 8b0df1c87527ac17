from django.db import models


class Order(models.Model):
    total = models.IntegerField()
    seen = models.DateTimeField(null=True)


class Listing(models.Model):
    title = models.CharField(max_length=80)


class ProcessedRequest(models.Model):
    event_id = models.CharField(max_length=80, unique=True)
