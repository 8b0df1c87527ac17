"""`Idempotency-Key` for WSGI applications (Flask, Django and others): the public names."""

from oncegate.integrations.wsgi import IdempotencyKey, caller_by_authorization

__all__ = ["IdempotencyKey", "caller_by_authorization"]
