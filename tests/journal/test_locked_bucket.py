"""Snapshots in a bucket with Object Lock, on SeaweedFS: written once, kept until their time (E8)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncegate.clock import SystemClock, from_wall_ms
from oncegate.errors import ConfigError, SnapshotError, SnapshotFork
from oncegate.journal.snapshots.archive import part_name
from oncegate.journal.snapshots.s3 import LockedBucket
from oncegate.journal.snapshots.vault import examine_vault, open_vault
from oncegate.testing import ManualClock
from oncegate.testing.waiting import wait_until
from oncegate.wiring.history import history_of
from tests.support.care import Care
from tests.support.servers import SeaweedFs

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ak")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sk")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def client(seaweedfs: SeaweedFs) -> Any:
    import boto3

    return boto3.session.Session().client("s3", endpoint_url=seaweedfs.url)


def bucket(client: Any, *, locked: bool = True, days: int | None = None) -> str:
    """A new bucket; the first one of a server takes some seconds."""
    name = f"b{secrets.token_hex(6)}"

    def made() -> bool:
        try:
            client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=locked)
        except client.exceptions.ClientError as error:
            return error.response["Error"]["Code"] in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
        return True

    wait_until(made)
    if days is not None:
        rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": days}}
        lock = {"ObjectLockEnabled": "Enabled", "Rule": rule}
        client.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=lock)
    return name


def address(seaweedfs: SeaweedFs, name: str, more: str = "mode=governance&retain=2d") -> str:
    return f"s3://{name}/care?{more}&endpoint={seaweedfs.url}"


@pytest.fixture
def care(seaweedfs: SeaweedFs, client: Any, tmp_path: Path) -> Iterator[Care]:
    made = Care(f"sqlite:///{tmp_path / 'l.db'}", tmp_path, to=address(seaweedfs, bucket(client)))
    yield made
    made.close()


def test_snapshots_are_taken_verified_and_locked(care: Care, client: Any) -> None:
    """Each object has the mode, a date and a checksum; a version cannot be deleted."""
    care.fill(5)
    care.take()
    care.fill(5, "x")
    care.take()
    archive = history_of(care.gate).taker().archive
    name = care.vault.split("/")[2]

    assert [one.manifest.number for one in archive.verify()] == [1, 2]
    for page in client.get_paginator("list_object_versions").paginate(Bucket=name):
        for one in page["Versions"]:
            held = client.get_object_retention(Bucket=name, Key=one["Key"], VersionId=one["VersionId"])
            assert held["Retention"]["Mode"] == "GOVERNANCE"
            left = held["Retention"]["RetainUntilDate"] - from_wall_ms(SystemClock().wall_ms())
            assert left > timedelta(days=2)
    assert archive.vault.try_to_destroy("manifests/000000000001") == "AccessDenied"


def test_same_content_is_our_own_retry_and_another_is_a_fork(seaweedfs: SeaweedFs, client: Any) -> None:
    """412 is read: what stands there decides."""
    vault = open_vault(address(seaweedfs, bucket(client)), SystemClock())

    assert [vault.put("a", b"1"), vault.put("a", b"1")] == [True, False]
    with pytest.raises(SnapshotFork, match="exists with another content"):
        vault.put("a", b"2")
    assert list(vault.names("a")) == ["a"]


def test_delete_marker_and_later_version_hide_nothing(seaweedfs: SeaweedFs, client: Any) -> None:
    """The first version is what counts."""
    name = bucket(client)
    vault = open_vault(address(seaweedfs, name), SystemClock())
    vault.put("a", b"1")
    client.put_object(Bucket=name, Key="care/a", Body=b"forged")
    client.delete_object(Bucket=name, Key="care/a")

    assert vault.has("a")
    assert vault.get("a") == b"1"


def test_bucket_without_lock_or_with_short_retention_is_refused(seaweedfs: SeaweedFs, client: Any) -> None:
    """Before the first snapshot, in one line."""
    plain = open_vault(address(seaweedfs, bucket(client, locked=False)), SystemClock())
    with pytest.raises(ConfigError, match="has no Object Lock"):
        plain.check()
    brief = open_vault(address(seaweedfs, bucket(client, days=1)), SystemClock())
    with pytest.raises(ConfigError, match="keeps objects for 1 days by default, and 2 are wanted"):
        brief.check()
    open_vault(address(seaweedfs, bucket(client, days=3)), SystemClock()).check()


def test_doctor_tries_to_delete_a_canary(seaweedfs: SeaweedFs, client: Any, tmp_path: Path) -> None:
    """Refused by a lock; possible in a folder, which is a warning; a plain bucket fails."""
    (locked,) = examine_vault(open_vault(address(seaweedfs, bucket(client)), SystemClock()))
    (folder,) = examine_vault(open_vault(f"file://{tmp_path}", SystemClock()))
    plain_bucket = address(seaweedfs, bucket(client, locked=False))
    (plain,) = examine_vault(open_vault(plain_bucket, SystemClock()))

    assert (locked.ok, locked.next_step) == (True, "")
    assert "was refused (AccessDenied)" in locked.value
    assert folder.ok
    assert "Object Lock" in folder.next_step
    assert not plain.ok


def test_part_in_use_gets_a_later_date_before_its_time(seaweedfs: SeaweedFs, client: Any) -> None:
    """Not with every snapshot: half the retention is given ahead."""
    name, clock = bucket(client), ManualClock(wall_ms=SystemClock().wall_ms())
    vault = LockedBucket(name, "care", timedelta(days=4), "GOVERNANCE", clock=clock, endpoint=seaweedfs.url)
    part = part_name("ab" * 32)
    vault.put(part, b"x")
    first = vault.keep_on(part, 0)
    clock.advance(86_400)
    same = vault.keep_on(part, first)
    clock.advance(3 * 86_400)
    later = vault.keep_on(part, same)
    held = client.get_object_retention(Bucket=name, Key=f"care/{part}")["Retention"]["RetainUntilDate"]

    assert same == first < later
    assert held.timestamp() // 86_400 == later


def test_server_that_is_away_and_options_that_are_wrong_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each; no snapshot counts."""
    away = open_vault("s3://b/p?endpoint=http://127.0.0.1:9", SystemClock())
    for call in (away.check, lambda: away.put("a", b"1"), lambda: list(away.names("a"))):
        with pytest.raises(SnapshotError, match="cannot be"):
            call()
    with pytest.raises(ConfigError, match="use compliance or governance"):
        open_vault("s3://b/p?mode=none", SystemClock())
    with pytest.raises(ConfigError, match="there is no option 'retian'"):
        open_vault("s3://b/p?retian=3d", SystemClock())
