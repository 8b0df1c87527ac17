"""Snapshots in an S3 bucket with Object Lock: no one deletes or replaces a version before its time.

Every object is put with `If-None-Match: *`, a SHA-256 checksum, the lock's mode and a retain-until date. A
part that later snapshots use again gets a later date in time. Must never use a bucket without a lock.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from oncegate.clock import Clock
from oncegate.errors import ConfigError, SnapshotError, SnapshotFork
from oncegate.journal.snapshots.vault import days
from oncegate.model.durations import format_duration

MODES: Final = ("COMPLIANCE", "GOVERNANCE")
DAY_MS: Final = 86_400_000
_HINT: Final = "snapshots in S3 need boto3: pip install 'oncegate[s3]'"
_EXISTS: Final = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}


class LockedBucket:
    """A bucket, or a folder of one."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        retain: timedelta,
        mode: str,
        *,
        clock: Clock,
        endpoint: str | None = None,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"snapshots: mode={mode.lower()} is unknown; use compliance or governance")
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        self._retain_days, self._mode, self._clock = days(retain), mode, clock
        self._client, self._refused, self._unreachable = _client(endpoint)

    @property
    def address(self) -> str:
        """The bucket and the folder."""
        return f"s3://{self._bucket}/{self._prefix}"

    @property
    def promise(self) -> str:
        """What the lock promises."""
        kept = format_duration(timedelta(days=self._retain_days))
        who = "no one" if self._mode == "COMPLIANCE" else "only holders of BypassGovernanceRetention"
        return f"Object Lock, {self._mode}: {who} can delete within {kept}"

    def check(self) -> None:
        """The bucket has Object Lock; a default retention is at least as long as ours."""
        try:
            found = self._client.get_object_lock_configuration(Bucket=self._bucket)
        except self._refused as error:
            raise ConfigError(
                f"snapshots: the bucket {self._bucket} has no Object Lock ({_code(error)}); make one with"
                " ObjectLockEnabledForBucket, and versioning"
            ) from None
        except self._unreachable as error:
            raise SnapshotError(f"{self.address} cannot be reached: {error}") from None
        lock = found.get("ObjectLockConfiguration", {})
        if lock.get("ObjectLockEnabled") != "Enabled":
            raise ConfigError(f"snapshots: Object Lock of the bucket {self._bucket} is not enabled")
        rule = lock.get("Rule", {}).get("DefaultRetention", {})
        longest = rule.get("Days", 0) + 365 * rule.get("Years", 0)
        if longest and longest < self._retain_days:
            raise ConfigError(
                f"snapshots: the bucket {self._bucket} keeps objects for {longest} days by default, and"
                f" {self._retain_days} are wanted; raise it, or write retain={longest}d"
            )

    def put(self, name: str, body: bytes) -> bool:
        """Puts a locked object under a new name."""
        checksum = base64.b64encode(sha256(body).digest()).decode()
        try:
            self._client.put_object(
                Bucket=self._bucket,
                Key=self._prefix + name,
                Body=body,
                IfNoneMatch="*",
                ChecksumSHA256=checksum,
                ObjectLockMode=self._mode,
                ObjectLockRetainUntilDate=_date(self._new_until()),
            )
        except self._refused as error:
            if _code(error) in _EXISTS:
                return self._same(name, body)
            raise SnapshotError(f"{self.address}{name} was refused: {error}") from None
        except self._unreachable as error:
            raise SnapshotError(f"{self.address} cannot be reached: {error}") from None
        return True

    def _same(self, name: str, body: bytes) -> bool:
        if self.get(name) != body:
            raise SnapshotFork(
                f"{self.address}{name} exists with another content: another ledger writes there, or it is"
                " forged; give each ledger its own prefix"
            )
        return False

    def get(self, name: str) -> bytes:
        """Reads the first version of an object: a later one cannot take its place."""
        key = self._prefix + name
        try:
            version = self._first_version(key)
            found = self._client.get_object(Bucket=self._bucket, Key=key, VersionId=version)
            return bytes(found["Body"].read())
        except self._refused as error:
            raise SnapshotError(f"{self.address}{name} cannot be read: {_code(error)}") from None
        except self._unreachable as error:
            raise SnapshotError(f"{self.address} cannot be reached: {error}") from None

    def _first_version(self, key: str) -> str:
        pages = self._client.get_paginator("list_object_versions")
        found = [
            one
            for page in pages.paginate(Bucket=self._bucket, Prefix=key)
            for one in page.get("Versions", ())
            if one["Key"] == key
        ]
        if not found:
            raise SnapshotError(f"s3://{self._bucket}/{key} is missing")
        # Listed newest first, and the time has no fractions: of equal ones the last is the oldest.
        return str(min(reversed(found), key=lambda one: one["LastModified"])["VersionId"])

    def has(self, name: str) -> bool:
        """Whether there is such an object, hidden by a delete marker or not."""
        return name in self.names(name)

    def names(self, prefix: str) -> Iterator[str]:
        """The objects of a folder, in order, whether or not a delete marker hides them."""
        pages = self._client.get_paginator("list_object_versions")
        found: set[str] = set()
        try:
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._prefix}{prefix}"):
                found.update(one["Key"].removeprefix(self._prefix) for one in page.get("Versions", ()))
        except (self._refused, self._unreachable) as error:
            raise SnapshotError(f"{self.address} cannot be listed: {error}") from None
        yield from sorted(found)

    def keep_on(self, name: str, kept_until_day: int) -> int:
        """Extends the retention of an object that would end before the snapshot that uses it."""
        if kept_until_day >= self._today() + self._retain_days:
            return kept_until_day
        until, key = self._new_until(), self._prefix + name
        if not kept_until_day:
            return until  # it was just put
        try:
            self._client.put_object_retention(
                Bucket=self._bucket,
                Key=key,
                VersionId=self._first_version(key),
                Retention={"Mode": self._mode, "RetainUntilDate": _date(until)},
                ChecksumAlgorithm="SHA256",
            )
        except (self._refused, self._unreachable) as error:
            raise SnapshotError(
                f"{self.address}{name}: the retention cannot be extended: {error}"
            ) from None
        return until

    def try_to_destroy(self, name: str) -> str | None:
        """Tries to delete the version itself."""
        key = self._prefix + name
        try:
            self._client.delete_object(Bucket=self._bucket, Key=key, VersionId=self._first_version(key))
        except self._refused as error:
            return _code(error)
        return None

    def _today(self) -> int:
        return self._clock.wall_ms() // DAY_MS

    def _new_until(self) -> int:
        """Half as long again, so that a part in use is extended once in a while and not every time."""
        return self._today() + self._retain_days + self._retain_days // 2 + 1


def _date(day: int) -> datetime:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC)


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) or str(error)


def _client(endpoint: str | None) -> tuple[Any, Any, Any]:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise ConfigError(_HINT) from None
    config = Config(retries={"total_max_attempts": 3}, connect_timeout=5, read_timeout=30)
    session = boto3.session.Session()  # the default one keeps the first credentials that a process had
    return session.client("s3", endpoint_url=endpoint, config=config), ClientError, BotoCoreError
