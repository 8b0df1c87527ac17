"""Partners: who may call, for which tenant, in which roles. Tokens are kept as hashes only.

The file is written by `oncegate partners` and read again by running services when it changes. Must never
hold, show or log a token.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from oncegate.errors import ConfigError, NotAuthentic
from oncegate.model.surface import check_name
from oncegate.signatures import Headers

TOKEN_PREFIX: Final = "ogt_"
TOKENS_MAX: Final = 2  # the old one stays good while a partner changes to the new one
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class Role(Enum):
    """What a partner may do."""

    SEND = "send"  # realtime and confirmations
    READ = "read"  # the feed
    PUBLISH = "publish"  # events into the feed


class Partner(msgspec.Struct, frozen=True):
    """Somebody who may call. `tokens` are SHA-256 hashes of tokens; a token has 256 random bits."""

    name: str
    tenant: str
    roles: tuple[Role, ...]
    tokens: tuple[str, ...]


def new_token() -> str:
    """A token, which is shown once and never kept."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hashed(token: str) -> str:
    """A token as it is kept."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_partner_name(name: str) -> str:
    """Returns a usable name, or raises ConfigError."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name[:40]!r} cannot name a partner; use 1 to 63 of A-Z a-z 0-9 . _ -")
    return name


class PartnerBook:
    """The partners of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._by_token: dict[str, Partner] = {}
        self._partners: dict[str, Partner] = {}

    def authenticate(self, headers: Headers) -> Partner:
        """Finds the partner whose token the request shows, or raises NotAuthentic."""
        given = headers.find("authorization") or ""
        kind, _, token = given.partition(" ")
        self.refresh()
        # Looked up by the hash: what the time of a lookup tells about a hash does not lead to a token.
        partner = self._by_token.get(hashed(token))
        if kind.lower() != "bearer" or partner is None:
            raise NotAuthentic("send a partner's token as Authorization: Bearer …")
        return partner

    @property
    def partners(self) -> Mapping[str, Partner]:
        """All partners by name."""
        self.refresh()
        return self._partners

    def refresh(self) -> None:
        """Reads the file again if it has changed; one that cannot be read leaves nobody in."""
        stamp = _stamp(self.path)
        if stamp == self._seen:
            return
        self._partners = {partner.name: partner for partner in read_partners(self.path)}
        self._by_token = {token: partner for partner in self._partners.values() for token in partner.tokens}
        self._seen = stamp

    def add(self, name: str, tenant: str, roles: Sequence[Role]) -> str:
        """Adds a partner and returns its token."""
        check_partner_name(name)
        check_name("tenant", tenant)
        if name in self.partners:
            raise ConfigError(
                f"there is a partner {name} already; `oncegate partners rotate` gives it a token"
            )
        if not roles:
            raise ConfigError(
                "a partner needs at least one role: " + ", ".join(role.value for role in Role)
            )
        token = new_token()
        self._keep(Partner(name, tenant, tuple(roles), (hashed(token),)))
        return token

    def rotate(self, name: str) -> str:
        """Gives a partner a new token; the one before stays good until the next rotation."""
        partner, token = self._find(name), new_token()
        self._keep(msgspec.structs.replace(partner, tokens=(hashed(token), *partner.tokens)[:TOKENS_MAX]))
        return token

    def revoke(self, name: str) -> None:
        """Shuts a partner out; its name and tenant stay on record."""
        self._keep(msgspec.structs.replace(self._find(name), tokens=()))

    def _find(self, name: str) -> Partner:
        found = self.partners.get(name)
        if found is None:
            known = ", ".join(sorted(self._partners)) or "none"
            raise ConfigError(f"no partner is called {name[:63]!r}; known: {known}")
        return found

    def _keep(self, partner: Partner) -> None:
        partners = {**self.partners, partner.name: partner}
        _write(self.path, [partners[name] for name in sorted(partners)])
        self._seen = None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_partners(path: Path) -> list[Partner]:
    """Reads the file; none is no partners, a damaged one raises ConfigError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Partner])
    except FileNotFoundError:
        return []
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is not a file of partners: {error}") from None


def _write(path: Path, partners: list[Partner]) -> None:
    """Replaces the file in one step, readable for its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    body = msgspec.json.format(msgspec.json.encode(partners), indent=2) + b"\n"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
