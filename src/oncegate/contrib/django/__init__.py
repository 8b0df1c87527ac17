"""oncegate as a Django app: a gate that follows DATABASES, `manage.py oncegate`, checks, middleware.

Add "oncegate.contrib.django" to INSTALLED_APPS and register handlers with `gate`. See docs/django.md.
"""

from oncegate.errors import ConfigError

try:
    import django as _django  # noqa: F401  only whether it is there
except ModuleNotFoundError as _error:
    raise ConfigError("oncegate.contrib.django needs Django: pip install 'oncegate[django]'") from _error

from oncegate.contrib.django.django_gate import DjangoGate, gate
from oncegate.contrib.django.middleware import IdempotencyKeyMiddleware

__all__ = ["DjangoGate", "IdempotencyKeyMiddleware", "gate"]
