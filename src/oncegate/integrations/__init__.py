"""Edges to web frameworks: the `Idempotency-Key` header in front of anybody's own API."""
