from django.db import models


class Parcel(models.Model):
    number = models.CharField(max_length=40, unique=True)
    email = models.EmailField()
    state = models.CharField(max_length=20)
    mail_sent = models.BooleanField(default=False)
    announced_at = models.DateTimeField(null=True)
    label_url = models.URLField(null=True)


class ParcelEvent(models.Model):
    number = models.CharField(max_length=40)
    code = models.CharField(max_length=8)
    at = models.DateTimeField(null=True)


class ProcessedWebhook(models.Model):
    external_id = models.CharField(max_length=80, unique=True)
