"""The address of a DynamoDB ledger, taken apart and checked; nothing is opened."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from oncegate.errors import BadUrl
from oncegate.model.ledger_addresses import masked_address

OPTIONS: Final = ("create", "endpoint", "profile", "region")
_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_REGION: Final = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d{1,2}|local")


class TableAddress(Struct, frozen=True):
    """Which table, and where. `create` says that connecting creates a missing table."""

    table: str
    region: str | None = None
    endpoint: str | None = None
    profile: str | None = None
    create: bool = False

    def __str__(self) -> str:
        options = {"region": self.region, "endpoint": self.endpoint, "profile": self.profile}
        told = urlencode({name: value for name, value in options.items() if value}, safe=":/")
        return f"dynamodb://{self.table}{'?' if told else ''}{told}"


def parse_address(address: str) -> TableAddress:
    """Reads `dynamodb://table?region=eu-central-1`."""
    shown = masked_address(address)
    try:
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise BadUrl(f"{shown} cannot be taken apart; check its options") from None
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise BadUrl(f"{shown}: unknown option {unknown[0][:40]!r}; known: {', '.join(OPTIONS)}")
    if "@" in parts.netloc:
        raise BadUrl(
            f"{shown}: credentials do not belong into the address; AWS's own settings are used"
            " (AWS_ACCESS_KEY_ID, AWS_PROFILE, the machine's role)"
        )
    table = parts.netloc
    if not _TABLE.fullmatch(table) or parts.path.strip("/") or parts.fragment:
        raise BadUrl(f"{shown} names no table; use dynamodb://table?region=eu-central-1")
    region, endpoint = options.get("region"), options.get("endpoint")
    if region is not None and not _REGION.fullmatch(region):
        raise BadUrl(f"{shown}: {region[:40]!r} is not a region; they read like eu-central-1")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise BadUrl(f"{shown}: an endpoint begins with http:// or https://")
    create = options.get("create", "0")
    if create not in ("0", "1"):
        raise BadUrl(f"{shown}: create can only be 0 or 1, not {create[:40]!r}")
    return TableAddress(table, region, endpoint, options.get("profile"), create == "1")
