"""Addresses of the project."""

from django.urls import path
from shop import views
from shop.oncegate_handlers import refunds

urlpatterns = [
    path("bookings", views.bookings),
    path("payments", views.payments),
    path("hooks/refunds", refunds.django()),
]
