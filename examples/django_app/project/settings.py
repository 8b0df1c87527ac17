"""Settings: the ledger is in the default database, whichever that is."""

import os
from pathlib import Path
from typing import Any

BASE = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only-for-this-example")
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "oncegate.contrib.django", "shop"]
MIDDLEWARE = ["oncegate.contrib.django.IdempotencyKeyMiddleware"]
ONCEGATE: dict[str, Any] = {
    "IDEMPOTENCY_KEY": {"caller": "shop.views.caller", "applies": "shop.views.is_payment"},
}
ROOT_URLCONF = "project.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE / "shop.sqlite3",
        # Begin as a writer: the ledger writes to the same file.
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
if "SHOP_POSTGRES" in os.environ:  # a folder or host with a PostgreSQL server
    DATABASES["default"] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("SHOP_POSTGRES_NAME", "shop"),
        "USER": os.environ.get("SHOP_POSTGRES_USER", "shop"),
        "HOST": os.environ["SHOP_POSTGRES"],
    }
