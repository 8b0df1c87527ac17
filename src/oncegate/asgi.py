"""`Idempotency-Key` for ASGI applications (FastAPI, Starlette, Django and others): the public names."""

from oncegate.integrations.asgi import IdempotencyKey, caller_by_authorization

__all__ = ["IdempotencyKey", "caller_by_authorization"]
