"""Partners: who may call, for which tenant, in which roles. Tokens are kept as hashes only.

They stand in the ledger's registry, so that every process on the ledger knows the same ones; a change is
seen by all within `FRESH_MS`. Must never hold, show or log a token, and never let a caller in on what was
known before the ledger went away.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import sha256
from typing import Final

import msgspec

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.errors import ConfigError, NotAuthentic, StoreBusy
from oncegate.model.surface import check_name
from oncegate.signatures import Headers
from oncegate.store import Document, DocumentChange

KIND: Final = "partner"
FRESH_MS: Final = 2_000  # how long a revoked token may still be taken by another process
STRANGER_MS: Final = 200  # how often tokens that nobody has may make us look again
PARTNERS_MAX: Final = 10_000
TRIES_MAX: Final = 5
TOKEN_PREFIX: Final = "ogt_"
TOKENS_MAX: Final = 2  # the old one stays good while a partner changes to the new one
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class PartnerRole(Enum):
    """What a partner may do."""

    SEND = "send"  # realtime and confirmations
    READ = "read"  # the feed
    PUBLISH = "publish"  # events into the feed


class Partner(msgspec.Struct, frozen=True):
    """A partner who may call. `tokens` are SHA-256 hashes of tokens; a token has 256 random bits."""

    name: str
    tenant: str
    roles: tuple[PartnerRole, ...]
    tokens: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Partner({self.name!r})"


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
    """The partners of one ledger."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits, self._clock = commits, clock
        self._by_token: dict[str, Partner] = {}
        self._partners: dict[str, Partner] = {}
        self._read_at_ms: int | None = None
        self._reading = asyncio.Lock()

    async def authenticate(self, headers: Headers) -> Partner:
        """Finds the partner whose token the request shows, or raises NotAuthentic."""
        token = _token(headers)
        if not self._is_fresh(FRESH_MS):
            await self._refresh(FRESH_MS)
        partner = self._by_token.get(token)
        if partner is None and not self._is_fresh(STRANGER_MS):  # perhaps it was given out a moment ago
            await self._refresh(STRANGER_MS)
            partner = self._by_token.get(token)
        if partner is None:
            raise NotAuthentic(_REFUSED)
        return partner

    def _is_fresh(self, within_ms: int) -> bool:
        if self._read_at_ms is None:
            return False
        return 0 <= self._clock.ticks_ms() - self._read_at_ms < within_ms

    async def _refresh(self, within_ms: int) -> None:
        """Reads the partners once for all who wait for it."""
        async with self._reading:
            if not self._is_fresh(within_ms):
                await asyncio.to_thread(self._read)

    def _read(self) -> None:
        began = self._clock.ticks_ms()
        self._partners = {one.name: _decoded(one) for one in self._documents()}
        self._by_token = {token: partner for partner in self._partners.values() for token in partner.tokens}
        self._read_at_ms = began

    def _documents(self) -> list[Document]:
        store = self._commits.store
        if not store.exists():
            return []
        with store.look() as session:
            return session.documents(KIND)

    @property
    def partners(self) -> Mapping[str, Partner]:
        """All partners by name, read now."""
        self._read()
        return self._partners

    def add(self, name: str, tenant: str, roles: Sequence[PartnerRole], actor: str = "partners") -> str:
        """Adds a partner and returns its token."""
        check_partner_name(name)
        check_name("tenant", tenant)
        if not roles:
            raise ConfigError(
                "a partner needs at least one role: " + ", ".join(role.value for role in PartnerRole)
            )
        if len(self.partners) >= PARTNERS_MAX:
            raise ConfigError(f"there are {PARTNERS_MAX} partners already")
        token = new_token()
        partner = Partner(name, tenant, tuple(roles), (hashed(token),))
        what = f"added for {tenant}: {', '.join(role.value for role in roles)}"
        if not self._write(partner, 0, actor, what):
            raise ConfigError(
                f"there is a partner {name} already; `oncegate partners rotate` gives it a token"
            )
        return token

    def rotate(self, name: str, actor: str = "partners") -> str:
        """Gives a partner a new token; the one before stays good until the next rotation."""
        token = new_token()
        self._change(name, (hashed(token),), actor, "got a new token")
        return token

    def revoke(self, name: str, actor: str = "partners") -> None:
        """Shuts a partner out; its name and tenant stay on record."""
        self._change(name, (), actor, "shut out")

    def _change(self, name: str, newest: tuple[str, ...], actor: str, what: str) -> None:
        """Puts a token in front, or without one removes all."""
        for _ in range(TRIES_MAX):
            found = self._find(name)
            partner = _decoded(found)
            tokens = (*newest, *partner.tokens)[:TOKENS_MAX] if newest else ()
            if self._write(msgspec.structs.replace(partner, tokens=tokens), found.version, actor, what):
                return
        raise StoreBusy(f"partner {name} is being changed by others; try again")

    def _find(self, name: str) -> Document:
        known = {one.name: one for one in self._documents()}
        if name not in known:
            names = ", ".join(sorted(known)[:10]) or "none"
            raise ConfigError(f"no partner is called {name[:63]!r}; known: {names}")
        return known[name]

    def _write(self, partner: Partner, version: int, actor: str, what: str) -> bool:
        note = f"partner {partner.name} {what}"
        body, now_ms = msgspec.json.encode(partner), self._clock.wall_ms()
        wanted = DocumentChange(KIND, partner.name, version, body, now_ms, actor, note[:300])
        try:
            return self._commits.submit(ChangeDocument(wanted))
        finally:
            self._read_at_ms = None


_REFUSED: Final = "send a partner's token as Authorization: Bearer …"
_decode: Final = msgspec.json.Decoder(Partner).decode


def _decoded(document: Document) -> Partner:
    return _decode(document.body)


def _token(headers: Headers) -> str:
    """The hash of the token that a request shows.

    Looked up by the hash: what the time of a lookup tells about a hash does not lead to a token.
    """
    kind, _, token = (headers.find("authorization") or "").partition(" ")
    if kind.lower() != "bearer":
        raise NotAuthentic(_REFUSED)
    return hashed(token)
