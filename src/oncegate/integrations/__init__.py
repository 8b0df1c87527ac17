"""Edges to web frameworks: the `Idempotency-Key` header in front of a user's own API."""
