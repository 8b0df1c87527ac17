"""The file system of a ledger: which one it is, and whether a ledger belongs there."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.cli import doctor
from oncegate.cli.doctor import Status
from oncegate.cli.filesystems import advice_on, filesystem_of

MOUNTS = r"""22 27 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:22 / /srv rw - tmpfs tmpfs rw,size=1k
24 23 0:23 / /srv/my\040disk rw master:1 shared:2 - xfs /dev/sdb1 rw
25 22 0:24 / /net rw - nfs4 server:/export rw
26 22 0:25 / /net rw - fuse.sshfs me@there: rw
a line that is none
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS, "utf-8")
    return path


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/ledger.db", "ext4"),
        ("/srv", "tmpfs"),
        ("/srv/data/ledger.db", "tmpfs"),
        ("/srvother/ledger.db", "ext4"),
        ("/srv/my disk/ledger.db", "xfs"),
        ("/net/x", "fuse.sshfs"),  # mounted over the other one
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(mounts: Path, path: str, kind: str) -> None:
    assert filesystem_of(Path(path), mounts) == kind


def test_a_system_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path, tmp_path / "none") is None


@pytest.mark.parametrize(
    ("kind", "may", "word"),
    [
        ("tmpfs", True, "memory"),
        ("ramfs", True, "memory"),
        ("overlay", True, "volume"),
        ("nfs4", False, "PostgreSQL"),
        ("cifs", False, "PostgreSQL"),
        ("fuse.sshfs", False, "PostgreSQL"),
    ],
)
def test_a_file_system_that_does_not_last_is_named_with_what_to_do(kind: str, may: bool, word: str) -> None:
    found = advice_on(kind)
    assert found is not None
    assert found[0] is may
    assert word in found[1]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "apfs"])
def test_a_local_disk_needs_no_advice(kind: str) -> None:
    assert advice_on(kind) is None


@pytest.mark.parametrize(
    ("kind", "status"), [("ext4", Status.OK), ("tmpfs", Status.WARN), ("nfs4", Status.FAIL)]
)
def test_doctor_tells_what_the_ledger_is_on(
    kind: str, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "filesystem_of", lambda _folder: kind)
    (line, *_) = doctor._disk(tmp_path / "ledger.db")
    assert (line.what, line.value, line.status) == ("file system", kind, status)
    assert bool(line.next_step) is (status is not Status.OK)
