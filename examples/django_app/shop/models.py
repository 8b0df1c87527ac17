"""What the shop keeps."""

from django.db import models


class Booking(models.Model):
    """A container's slot at the terminal."""

    container = models.CharField(max_length=20)
    slot = models.CharField(max_length=20)


class Payment(models.Model):
    """Money for an order."""

    order = models.CharField(max_length=20)
    cents = models.IntegerField()
