"""Random edits of a sealed ledger: each is found, and the range that is named has the record in it."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from oncegate.journal.keys import PrivateKey
from oncegate.journal.verifying import TamperFinding, Verification
from oncegate.testing.clock import ManualClock
from oncegate.wiring import open_store
from tests.journal.conftest import SealedLedger

RECORDS = 40
Edit = Callable[[sqlite3.Connection, random.Random, int], None]
COLUMNS = ["entry", "kind", "at", "actor"]
STRANGE = ["'x'", "99", "-7", "x'00ff'", "2.5", "9e99"]
TILES = "kind = 'journal-tile' AND name LIKE '0/%'"


def flip(db: sqlite3.Connection, chance: random.Random, at: int) -> None:
    column = chance.choice(COLUMNS)
    changed = {
        "note": "note = coalesce(note, '') || 'x'",
        "actor": "actor = iif(actor = 1, 2, 1)",
        "kind": "kind = iif(kind = 2, 3, 2)",
        "strange": f"{column} = {chance.choice(STRANGE)}",
        "number": f"{column} = {column} + {chance.choice([-1, 1, 1000])}",
    }
    db.execute(f"UPDATE oncegate_log SET {chance.choice([*changed.values()])} WHERE position = ?", (at,))


def drop(db: sqlite3.Connection, chance: random.Random, at: int) -> None:
    db.execute("DELETE FROM oncegate_log WHERE position = ?", (at,))


def swap(db: sqlite3.Connection, chance: random.Random, at: int) -> None:
    other = at - 1 if at > 1 else at + 1
    for old, new in ((at, -1), (other, at), (-1, other)):
        db.execute("UPDATE oncegate_log SET position = ? WHERE position = ?", (new, old))


def insert(db: sqlite3.Connection, chance: random.Random, at: int) -> None:
    db.execute("UPDATE oncegate_log SET position = -position - 1 WHERE position >= ?", (at,))
    db.execute("UPDATE oncegate_log SET position = -position WHERE position < 0")
    sql = "INSERT INTO oncegate_log SELECT ?, entry, kind, at, actor, note FROM oncegate_log LIMIT 1"
    db.execute(sql, (at,))


def truncate(db: sqlite3.Connection, chance: random.Random, at: int) -> None:
    db.execute("DELETE FROM oncegate_log WHERE position >= ?", (at,))


def renumber(db: sqlite3.Connection, chance: random.Random, at: int) -> None:
    db.execute("UPDATE oncegate_log SET position = ? WHERE position = ?", (10_000 + at, at))


def rewrite_row(db: sqlite3.Connection, chance: random.Random, at: int) -> None:
    """Changes the sealed row, as an attacker does who covers a changed record but has no key."""
    (body,) = db.execute(f"SELECT body FROM oncegate_document WHERE {TILES}").fetchone()
    place = (at - 1) * 120 + chance.randrange(120)
    body = body[:place] + bytes([body[place] ^ (1 << chance.randrange(8))]) + body[place + 1 :]
    db.execute(f"UPDATE oncegate_document SET body = ? WHERE {TILES}", (body,))


def change_body(db: sqlite3.Connection, chance: random.Random, at: int) -> None:
    table = chance.choice(["payload", "outcome"])
    if chance.random() < 0.5:
        db.execute(f"UPDATE oncegate_{table} SET body = body || x'20' WHERE entry = ?", (at,))
    else:
        db.execute(f"DELETE FROM oncegate_{table} WHERE entry = ?", (at,))


EDITS: list[Edit] = [flip, drop, swap, insert, truncate, renumber, rewrite_row, change_body]


class Campaign:
    """A sealed ledger that is copied, edited and verified."""

    def __init__(self, folder: Path, key: PrivateKey) -> None:
        self.folder, self.key = folder, key
        self.file, self.old = folder / "good.db", folder / "old.db"
        made = SealedLedger(f"sqlite:///{self.file}", key)
        made.fill(RECORDS // 2)
        made.seal(batch_records=6)
        made.gate.close()
        shutil.copy(self.file, self.old)
        made = SealedLedger(f"sqlite:///{self.file}", key)
        made.fill(RECORDS // 2, RECORDS // 2)
        self.head = made.seal(batch_records=6).head
        made.gate.close()

    def findings(self, file: Path) -> list[TamperFinding]:
        store = open_store(f"sqlite:///{file}", clock=ManualClock())
        with store.look() as session:
            report = Verification(session, trusted=[self.key.verifier], heads=[("kept", self.head)]).run()
        store.close()
        return report.findings

    def edited(self, edit: Edit, chance: random.Random) -> tuple[int, list[TamperFinding]]:
        file, at = self.folder / "edited.db", chance.randrange(1, RECORDS + 1)
        shutil.copy(self.file, file)
        db = sqlite3.connect(file)
        edit(db, chance, at)
        db.commit()
        db.close()
        return at, self.findings(file)


def play(campaign: Campaign, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        edit = EDITS[seed % len(EDITS)]
        at, found = campaign.edited(edit, chance)
        assert found, f"seed {seed}: {edit.__name__} at record {at - 1} was not found"
        is_named = any(one.first - 1 <= at - 1 <= one.last + 1 for one in found)
        assert is_named, f"seed {seed}: {edit.__name__} at {at - 1} is not within {found}"


@pytest.mark.slow
def test_edits_are_found_and_placed(tmp_path: Path, seal_key: PrivateKey) -> None:
    campaign = Campaign(tmp_path, seal_key)
    assert campaign.findings(campaign.file) == []
    play(campaign, range(48))


def test_an_old_copy_is_found_by_a_head_from_outside(tmp_path: Path, seal_key: PrivateKey) -> None:
    campaign = Campaign(tmp_path, seal_key)
    (found,) = campaign.findings(campaign.old)
    assert (found.first, found.last) == (RECORDS // 2, RECORDS - 1)
    assert "went back" in found.what


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_edits_are_found_and_placed(tmp_path: Path, seal_key: PrivateKey) -> None:
    play(Campaign(tmp_path, seal_key), range(10_000))


def test_postgresql_finds_edits_too(ledger_url: str, seal_key: PrivateKey) -> None:
    import psycopg

    made = SealedLedger(ledger_url, seal_key)
    made.fill(12)
    made.seal(batch_records=5)
    edits: dict[str, str] = {
        "was changed": "UPDATE oncegate_log SET at = at + 1 WHERE position = 5",
        "was removed": "DELETE FROM oncegate_log WHERE position = 7",
        "was added": "INSERT INTO oncegate_log (xact, entry, kind, at, actor)"
        " SELECT xact, entry, kind, at, actor FROM oncegate_log WHERE position = 3",
        "the event of entry": "UPDATE oncegate_payload SET body = body || ' '::bytea WHERE entry = 4",
        "the outcome of entry": "DELETE FROM oncegate_outcome WHERE entry = 2",
    }
    for word, sql in edits.items():
        with psycopg.connect(ledger_url) as connection:
            connection.execute(sql)
        report = made.verify()
        assert any(word in one.what for one in report.findings), (word, report.findings)
    made.gate.close()
