"""What decides the key of a surface's events, as its ledger keeps it, and what a change of it means.

A ledger knows one identity for each surface: its key template, where its tenant comes from, and which
functions may stand behind its name. A program that declares another one is refused before anything runs,
because every known event would be new to it. A person accepts a change (`oncegate surfaces`). For a while
after that (the overlap) programs with the old and the new template run side by side, and both make keys
by the old one. Then the new template makes the keys, and the old keys are looked up first, as long as
entries under them are kept. Pure: no store, no clock.
"""

from __future__ import annotations

import shlex
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.errors import ConfigError, InputRefused
from oncegate.model.keys import Key, derive_key
from oncegate.model.paths import parse_path
from oncegate.model.surface import Arrival, SurfaceRule, owner_of
from oncegate.model.template import KeyTemplate

KIND: Final = "identity"  # of the documents in the ledger's registry
# How long a process relies on what it read of an identity, in the ledger's time. No overlap is shorter
# than three times this: a program that knows of no change has stopped or read again before it ends.
VALID_MS: Final = 10 * 60 * 1000
OVERLAP_MIN_MS: Final = 3 * VALID_MS
ORIGINS_MAX: Final = 32
FORMER_MAX: Final = 16
HANDLER: Final = "handler"  # the origin of every surface that is no function under `gate.once`


class Former(Struct, frozen=True):
    """An earlier template, and when keys were last made by it: in the ledger's time, and by the wall."""

    key: str
    tenant: str | None
    until_ticks: int
    until_ms: int


class Identity(Struct, frozen=True):
    """What a ledger keeps of a surface."""

    key: str
    tenant: str | None
    origins: tuple[str, ...]
    former: tuple[Former, ...] = ()

    def encoded(self) -> bytes:
        """As a document of the registry."""
        return msgspec.json.encode(self)


class KeyRule(Struct, frozen=True):
    """How a key is made: a template, and where the tenant comes from."""

    template: KeyTemplate
    tenant_path: tuple[str, ...] | None


class LedgerNow(Struct, frozen=True):
    """Now, in the ledger's time, by the wall, and in the process's own ticks where these matter."""

    ticks: int
    wall_ms: int
    own_ticks_ms: int = 0


class KeyPlan(Struct, frozen=True):
    """How a process makes keys at a surface until `until_ticks`, the ledger's time.

    It compares again at `recheck_at_ticks_ms`, in its own ticks: no step of a wall clock puts that off.
    `first` is the former template that makes keys during an overlap; `also` are those whose keys are
    looked up too. `newest_first` are all templates. All are empty where nothing has changed.
    """

    until_ticks: int
    recheck_at_ticks_ms: int
    first: KeyRule | None = None
    also: tuple[KeyRule, ...] = ()
    newest_first: tuple[KeyRule, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the declared template alone makes the key."""
        return self.first is None and not self.also


def identity_of(rule: SurfaceRule, origin: str) -> Identity:
    """What a program declares of a surface."""
    tenant = None if rule.tenant_path is None else ".".join(rule.tenant_path)
    return Identity(rule.key.text, tenant, (origin,))


def read_identity(body: bytes) -> Identity:
    """An identity as a ledger keeps it."""
    try:
        return msgspec.json.decode(body, type=Identity)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"the ledger keeps an identity that this version cannot read ({error}); install a newer one"
        ) from error


def plan_of(surface: str, kept: Identity, declared: Identity, now: LedgerNow, kept_ms: int) -> KeyPlan:
    """How to make keys from now on; raises ConfigError where the ledger knows another identity.

    `kept_ms` is for how long entries are kept: old keys are looked up for so long after their last use.
    """
    _check_origin(surface, kept, declared)
    current = [former for former in kept.former if former.until_ticks > now.ticks]
    wanted = (declared.key, declared.tenant)
    if wanted not in [(kept.key, kept.tenant), *((former.key, former.tenant) for former in current)]:
        raise ConfigError(_other_template(surface, kept, declared))
    until = min([now.ticks + VALID_MS, *(former.until_ticks for former in current)])
    recheck_at_ticks_ms = now.own_ticks_ms + VALID_MS // 2
    if not kept.former:
        return KeyPlan(until, recheck_at_ticks_ms)
    makes_keys: Identity | Former = current[0] if current else kept
    first = None if (makes_keys.key, makes_keys.tenant) == wanted else _rule(makes_keys)
    ended = [f for f in kept.former if f not in current and now.wall_ms < f.until_ms + kept_ms]
    known_by: list[Identity | Former] = [*reversed(ended), *current, kept]
    also = {(found.key, found.tenant): _rule(found) for found in known_by}
    ages: list[Identity | Former] = [kept, *reversed(kept.former)]
    newest_first = {(found.key, found.tenant): _rule(found) for found in ages}
    also.pop((makes_keys.key, makes_keys.tenant), None)
    return KeyPlan(until, recheck_at_ticks_ms, first, tuple(also.values()), tuple(newest_first.values()))


def with_former_keys(
    plan: KeyPlan, rule: SurfaceRule, arrival: Arrival, payload: object, tenant: str | None
) -> Arrival:
    """An arrival under the key that the plan says, with the other keys that its event may be known by."""
    ways = plan.also if plan.first is None else (plan.first, *plan.also)
    read = [_key(way, rule.name, payload, tenant) for way in ways]
    key, owner = arrival.key.digest, arrival.tenant
    if plan.first is not None and read[0] is not None and not arrival.is_unreadable:
        key, owner = read[0]
    others = dict.fromkeys(found[0] for found in read if found is not None)
    others.pop(key, None)
    return msgspec.structs.replace(arrival, key=Key(key), tenant=owner, also=tuple(others))


def with_all_keys(plan: KeyPlan, rule: SurfaceRule, arrival: Arrival, payload: object) -> Arrival:
    """An arrival that was read before, under its own key, with all others its event may be known by."""
    tenant = arrival.tenant if rule.tenant_path is None else None
    declared = KeyRule(rule.key, rule.tenant_path)
    ways = (declared, *plan.also) if plan.first is None else (declared, plan.first, *plan.also)
    found = [key[0] for way in ways if (key := _key(way, rule.name, payload, tenant)) is not None]
    others = dict.fromkeys(found)
    others.pop(arrival.key.digest, None)
    return msgspec.structs.replace(arrival, also=tuple(others))


def newer_keys(plan: KeyPlan, rule: SurfaceRule, arrival: Arrival, payload: object) -> tuple[bytes, ...]:
    """The keys of an event by templates that are newer than the one that made its own."""
    tenant = arrival.tenant if rule.tenant_path is None else None
    newer: list[bytes] = []
    for way in plan.newest_first:
        found = _key(way, rule.name, payload, tenant)
        if found is not None and found[0] == arrival.key.digest:
            return tuple(newer)
        newer += [] if found is None else [found[0]]
    return ()


def rekeyed(kept: Identity, new: KeyRule, now: LedgerNow, overlap_ms: int) -> Identity:
    """The identity after a person has accepted another template; raises ConfigError where it cannot be."""
    tenant = None if new.tenant_path is None else ".".join(new.tenant_path)
    if (kept.key, kept.tenant) == (new.template.text, tenant):
        raise ConfigError(f"the key template is {kept.key!r} already; nothing was changed")
    if overlap_ms < OVERLAP_MIN_MS:
        raise ConfigError(f"--overlap is at least {OVERLAP_MIN_MS // 60_000}m: programs that run notice")
    running = [former for former in kept.former if former.until_ticks > now.ticks]
    if running:
        raise ConfigError(
            f"keys are made by {running[0].key!r} until the overlap of the last change ends; wait for that"
        )
    if len(kept.former) >= FORMER_MAX:
        raise ConfigError(f"the surface had {FORMER_MAX} templates already; use a new surface")
    former = Former(kept.key, kept.tenant, now.ticks + overlap_ms, now.wall_ms + overlap_ms)
    return msgspec.structs.replace(
        kept, key=new.template.text, tenant=tenant, former=(*kept.former, former)
    )


def accepted(kept: Identity, origin: str) -> Identity:
    """The identity after a person has accepted another function under the name."""
    if origin in kept.origins:
        raise ConfigError(f"{origin!r} is accepted already; nothing was changed")
    if len(kept.origins) >= ORIGINS_MAX:
        raise ConfigError(f"{ORIGINS_MAX} functions are accepted under this name; use a new name")
    return msgspec.structs.replace(kept, origins=(*kept.origins, origin))


def _check_origin(surface: str, kept: Identity, declared: Identity) -> None:
    (origin,) = declared.origins
    if origin in kept.origins:
        return
    raise ConfigError(
        f"surface {surface!r} belongs to {', '.join(kept.origins)} in this ledger, and {origin} declares it"
        " too; nothing was run. Two functions under one name answer for each other: give this one another"
        f" name (name=…). Where it is the same function, moved or renamed, accept it: oncegate surfaces"
        f" accept {shlex.quote(surface)} --origin {shlex.quote(origin)} --reason WHY"
    )


def _other_template(surface: str, kept: Identity, declared: Identity) -> str:
    old, new = _words(kept.key, kept.tenant), _words(declared.key, declared.tenant)
    command = (
        f"oncegate surfaces rekey {shlex.quote(surface)} --from {shlex.quote(kept.key)}"
        f" --to {shlex.quote(declared.key)}"
    )
    if declared.tenant != kept.tenant:
        command += f" --tenant {shlex.quote(declared.tenant or '')}"
    return (
        f"surface {surface!r} has the key template {old} in this ledger, and this program declares {new}:"
        " every known event would be new, and run again; nothing was run. Declare the template that the"
        f" ledger knows, or accept the change: {command} --reason WHY"
    )


def _words(key: str, tenant: str | None) -> str:
    return repr(key) if tenant is None else f"{key!r} (tenant {tenant})"


def _rule(found: Identity | Former) -> KeyRule:
    # It was checked when it was declared; what a template may not name has no bearing on known keys.
    template = KeyTemplate.parse_kept(found.key)
    return KeyRule(template, None if found.tenant is None else parse_path(found.tenant))


def _key(way: KeyRule, surface: str, payload: object, tenant: str | None) -> tuple[bytes, str] | None:
    """The key and tenant that a template gives; None where it cannot read the event."""
    try:
        owner = owner_of(way.tenant_path, payload, tenant)
        parts = way.template.derive(payload)
    except InputRefused:
        return None
    return derive_key(owner, surface, way.template.text, parts.parts).digest, owner
