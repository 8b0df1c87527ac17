"""Crashes while sealing: the next run goes on, and no clean run raises a false alarm."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from oncegate.crashpoints import SEAL_CRASH_POINTS
from oncegate.errors import StoreError
from oncegate.journal.keys import PrivateKey
from oncegate.journal.publishing import HeadFolder
from oncegate.journal.sealer import Sealer
from oncegate.testing import Fault, Faults, faulty
from oncegate.testing.crashing import ArmedCrashPoints, CrashReached
from tests.journal.conftest import SealedLedger


def crashed_and_resumed(made: SealedLedger, folder: HeadFolder, point: str, nth: int) -> None:
    """Seals with a crash at a point, then again without one."""
    armed = ArmedCrashPoints.raising(point, occurrence=nth)
    try:
        made.seal(batch_records=4, destinations=[folder], crashpoints=armed)
    except CrashReached:
        report = made.verify()
        assert report.is_intact, (point, report.findings)
    made.seal(batch_records=4, destinations=[folder])
    newest = folder.newest()
    assert newest is not None
    report = made.verify(heads=[("published", newest[1])])
    assert report.is_intact, (point, report.findings)
    assert report.unsealed == 0


@pytest.mark.parametrize("point", SEAL_CRASH_POINTS)
def test_a_crash_leaves_a_good_journal(sealed: SealedLedger, tmp_path: Path, point: str) -> None:
    sealed.fill(10)
    crashed_and_resumed(sealed, HeadFolder(tmp_path / "heads"), point, 1)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.UNDONE])
def test_a_lost_reply_leaves_a_good_journal(sealed: SealedLedger, fault: Fault) -> None:
    """Whether the head was committed or not, the next run goes on from what stands."""
    sealed.fill(10)
    sealed.seal(batch_records=4)
    sealed.fill(6, 10)
    faults = Faults()
    faults.plan.append(fault)
    with pytest.raises(StoreError):
        Sealer(faulty(sealed.store, faults), sealed.clock, [sealed.key]).run_once(at_once=True)
    assert sealed.verify().is_intact
    sealed.seal()
    report = sealed.verify()
    assert (report.findings, report.unsealed) == ([], 0)


def test_two_sealers_make_one_tree(sealed: SealedLedger) -> None:
    sealed.fill(6)
    first, second = sealed.sealer(), sealed.sealer()
    assert first.run_once(at_once=True).sealed == 6
    assert second.run_once(at_once=True).sealed == 0
    assert sealed.verify().is_intact


def play_clean(folder: Path, key: PrivateKey, runs: int) -> None:
    made, heads = SealedLedger(f"sqlite:///{folder}/ledger.db", key), HeadFolder(folder / "heads")
    chance = random.Random(25)
    for run in range(runs):
        made.fill(chance.randrange(1, 6), run * 10)
        crashed_and_resumed(made, heads, chance.choice([*SEAL_CRASH_POINTS]), chance.randrange(1, 3))
    made.gate.close()


@pytest.mark.slow
def test_clean_runs_with_crashes_raise_no_alarm(tmp_path: Path, seal_key: PrivateKey) -> None:
    play_clean(tmp_path, seal_key, 15)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_clean_runs_raise_no_alarm(tmp_path: Path, seal_key: PrivateKey) -> None:
    for part in range(20):
        (tmp_path / str(part)).mkdir()
        play_clean(tmp_path / str(part), seal_key, 50)
