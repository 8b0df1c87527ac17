"""Bookings, payments and orders."""
