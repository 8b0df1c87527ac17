"""Write-once storage: what a vault must do, how it is named, and how it is tested.

A vault keeps named bytes. Nothing is ever replaced: writing a name again succeeds with the same content
(our own retry) and raises SnapshotFork with another one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlsplit

from oncegate.clock import Clock
from oncegate.errors import ConfigError, SnapshotError
from oncegate.model.durations import parse_duration
from oncegate.store import Finding

RETAIN: Final = "90d"


class Vault(Protocol):
    """A place where snapshots are kept."""

    @property
    def address(self) -> str:
        """Its name for people."""

    @property
    def promise(self) -> str:
        """What keeps stored bytes from being changed, in words."""

    def check(self) -> None:
        """Raises ConfigError unless the place can be used as it is declared."""

    def put(self, name: str, body: bytes) -> bool:
        """Writes once; False where the same content stands there, SnapshotFork where another does."""

    def get(self, name: str) -> bytes:
        """Reads; raises SnapshotError where there is none."""

    def has(self, name: str) -> bool:
        """Whether something stands under a name."""

    def names(self, prefix: str) -> Iterator[str]:
        """The names that begin so, in order."""

    def keep_on(self, name: str, kept_until_day: int) -> int:
        """Sees to it that a name is kept long enough; returns the day until which it is, 0 for ever."""

    def try_to_destroy(self, name: str) -> str | None:
        """Tries to delete; returns how that was refused, None where it succeeded."""


def open_vault(address: str, clock: Clock) -> Vault:
    """A vault at `file:///path` or `s3://bucket/prefix?mode=compliance&retain=90d`."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "file" and parts.path and not parts.netloc:
        from oncegate.journal.snapshots.folder import Folder

        immutable = options.pop("immutable", "no") == "yes"
        _refuse_unknown(options, "immutable=yes")
        return Folder(parts.path, immutable=immutable)
    if parts.scheme == "s3" and parts.netloc:
        from oncegate.journal.snapshots.s3 import LockedBucket

        retain = parse_duration(options.pop("retain", RETAIN))
        mode, endpoint = options.pop("mode", "compliance").upper(), options.pop("endpoint", None)
        _refuse_unknown(options, "mode=, retain=, endpoint=")
        return LockedBucket(
            parts.netloc, parts.path.strip("/"), retain, mode, clock=clock, endpoint=endpoint
        )
    raise ConfigError(
        f"{address[:80]!r} is no place for snapshots; write file:///path or s3://bucket/prefix"
    )


def _refuse_unknown(options: dict[str, str], known: str) -> None:
    if options:
        raise ConfigError(f"snapshots: there is no option {next(iter(options))!r}; options are {known}")


def days(duration: timedelta) -> int:
    """A duration in whole days, rounded up."""
    return -(-duration // timedelta(days=1))


def examine_vault(vault: Vault) -> Iterator[Finding]:
    """Puts a canary, tries to delete it, and says what came of it: for `oncegate doctor`."""
    try:
        vault.check()
        name = f"canary/{secrets.token_hex(8)}"
        vault.put(name, name.encode())
        if vault.get(name) != name.encode():
            raise SnapshotError("the canary was read back with another content")
        refused = vault.try_to_destroy(name)
    except (ConfigError, SnapshotError) as error:
        yield Finding(False, "snapshots", vault.address, str(error))
        return
    if refused is None:
        step = "use a bucket with Object Lock where snapshots must survive an administrator"
        yield Finding(True, "snapshots", f"{vault.address}: {vault.promise}; a canary was deleted", step)
    else:
        value = f"{vault.address}: {vault.promise}; deleting a canary was refused ({refused})"
        yield Finding(True, "snapshots", value, "")
