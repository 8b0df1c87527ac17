"""Sending webhooks: where to, what, and what came of it."""
