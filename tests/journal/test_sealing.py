"""Sealing on both ledgers: what is sealed verifies, and heads outside show what went back."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.errors import ConfigError, JournalForked
from oncegate.journal.keys import PrivateKey
from oncegate.journal.publishing import HeadFolder
from oncegate.journal.sealer import Sealer
from oncegate.journal.tiles import read_state
from tests.journal.conftest import SealedLedger


def test_what_is_sealed_verifies_and_goes_on(sealed: SealedLedger) -> None:
    sealed.fill(30)
    first = sealed.seal(batch_records=7)
    assert first.sealed == first.size >= 30
    sealed.fill(10, 30)
    report = sealed.verify()
    assert report.is_intact, report.findings
    assert (report.size, report.unsealed) == (first.size, 10)
    second = sealed.seal()
    assert second.size == first.size + 10
    report = sealed.verify(heads=[("earlier", first.head)])
    assert report.is_intact, report.findings
    assert report.bodies >= 40


def test_nothing_is_sealed_before_it_is_due(sealed: SealedLedger) -> None:
    sealed.fill(3)
    sealed.seal()
    sealed.fill(3, 3)
    assert sealed.sealer().run_once().waiting == 3
    sealed.clock.advance(16 * 60)
    assert sealed.sealer().run_once().sealed == 3
    sealed.fill(5, 6)
    assert sealed.sealer(records_max=5).run_once().sealed == 5


def test_a_head_that_was_published_shows_that_the_ledger_went_back(
    sealed: SealedLedger, tmp_path: Path
) -> None:
    folder = HeadFolder(tmp_path / "heads")
    sealed.fill(4)
    sealed.seal(destinations=[folder])
    assert [one.name for one in (tmp_path / "heads").iterdir()] == [f"{4:020d}"]
    head = (tmp_path / "heads" / f"{4:020d}").read_text()
    other = head.replace("\n4\n", "\n9\n")
    (tmp_path / "heads" / f"{9:020d}").write_text(other)
    sealed.fill(2, 4)
    report = sealed.seal(destinations=[folder])
    assert report.sealed == 0
    assert "went back" in (report.problem or "")
    with sealed.store.look() as session:
        state, _ = read_state(session)
        assert state is not None
        assert state.size == 4


def test_a_head_of_the_same_size_with_another_root_is_a_fork(sealed: SealedLedger, tmp_path: Path) -> None:
    sealed.fill(4)
    sealed.seal()
    with sealed.store.look() as session:
        state, _ = read_state(session)
    assert state is not None
    (tmp_path / f"{4:020d}").write_text(state.head.replace(state.head.split("\n")[2], "A" * 43 + "="))
    with pytest.raises(JournalForked, match="another head"):
        HeadFolder(tmp_path).publish(state)


def test_another_key_is_refused_until_the_old_one_introduces_it(sealed: SealedLedger) -> None:
    sealed.fill(3)
    sealed.seal()
    sealed.fill(3, 3)
    new = PrivateKey.generate("shop.example/log")
    with pytest.raises(ConfigError, match="keep the old key"):
        Sealer(sealed.store, sealed.clock, [new]).run_once(at_once=True)
    both = Sealer(sealed.store, sealed.clock, [sealed.key, new]).run_once(at_once=True)
    assert both.head.count("— ") == 2
    sealed.fill(2, 6)
    Sealer(sealed.store, sealed.clock, [new]).run_once(at_once=True)
    report = sealed.verify()  # trusts the old key only
    assert report.is_intact, report.findings
    with sealed.store.look() as session:
        notes = [one.note for one in session.log_before(None, 50, by_people=True)]
    assert new.verifier.text in notes


def test_a_trusted_key_that_never_signed_finds_nothing_good(sealed: SealedLedger) -> None:
    sealed.fill(3)
    sealed.seal()
    sealed.key = PrivateKey.generate("shop.example/log")
    assert not sealed.verify().is_intact
