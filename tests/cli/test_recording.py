"""`oncegate record` and `oncegate replay`: from a ledger or a live gate to a file, and on to anywhere."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate
from oncegate.cli import replay as replay_command
from oncegate.recorder import Recorder, Rules
from oncegate.testing import ManualClock
from tests.cli.conftest import Ended

Call = Callable[..., Ended]

APP = """
from oncegate import Gate
gate = Gate("sqlite:///never-opened.db")
terminal = gate.downstream("terminal", honours_key="7d")
def claim_slot(number, idempotency_key=""):
    return {"id": "slot"}
@gate.handler("bookings", key="{id}", occurred_at="at")
def book(event, once):
    once.effect(terminal, claim_slot, event["id"])
    return 1
"""
RULES = '[surfaces.bookings]\nkeep = ["status"]\noccurred_at = "at"\n'


def event(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"b-{number}", "status": "new", "name": "Anna", "at": "2026-05-28T20:26:40Z", **more}


def fill(path: Path, folder: Path | None = None) -> None:
    fill_at(f"sqlite:///{path}", folder)


def fill_at(url: str, folder: Path | None = None) -> None:
    """Three bookings; the first comes three times and once with another content."""
    clock = ManualClock()
    with Gate(url, clock=clock) as gate:

        @gate.handler("bookings", key="{id}", occurred_at="at", lease="10m")
        def book(event: Any, once: Any) -> int:
            return 1

        if folder is not None:
            Recorder(folder, {"bookings": Rules(keep=["status"])}).attach(gate)
        for given in (event(1), event(2), event(1), event(1), event(3), event(1, name="Bea")):
            gate.admit_sync("bookings", given)
            clock.advance(20)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with handlers, imported afresh for each test."""
    name = f"app_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.syspath_prepend(str(tmp_path))
    return f"{name}:gate"


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A recording that a recorder made."""
    fill(tmp_path / "live.db", tmp_path / "live")
    return tmp_path / "live"


def test_what_a_ledger_holds_is_recorded_and_played(call: Call, tmp_path: Path, app: str) -> None:
    """Given a ledger, when it is recorded by rules, then the file plays to the same effects."""
    fill(tmp_path / "old.db")
    (tmp_path / "rules.toml").write_text(RULES)
    words = ("record", "-o", "r.jsonl", "--url", "sqlite:///old.db", "--rules", "rules.toml")
    made = call(*words, "--json")
    text = (tmp_path / "r.jsonl").read_text()
    played = call("replay", "r.jsonl", "--app", app, "--expect", "effects=3", "--json")

    assert made.code == 0
    told = json.loads(made.out)
    assert (told["arrivals"], told["events"], told["without_payload"]) == (6, 3, 0)
    assert told["repeats"] == {"conflict": 1, "expected_replay": 2}
    assert "Anna" not in text
    assert "b-1" not in text
    assert stat.S_IMODE((tmp_path / "r.jsonl").stat().st_mode) == 0o600
    assert (played.code, json.loads(played.out)["verdicts"]) == (0, {"conflict": 1, "replay": 2, "run": 3})
    # And a second time it is refused: a recording is not overwritten
    assert "exists already" in call(*words).complaint


def test_a_ledger_on_postgresql_is_recorded_alike(
    call: Call, tmp_path: Path, app: str, ledger_url: str
) -> None:
    """The same arrivals on either store give the same recording, with the same key for hashes."""
    (tmp_path / "rules.toml").write_text(RULES)
    made = []
    for name, url in (("s", f"sqlite:///{tmp_path}/old.db"), ("p", ledger_url)):
        fill_at(url)
        words = ("record", "-o", f"{name}.jsonl", "--url", url, "--rules", "rules.toml")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RECORD_KEY", "a key of more than sixteen bytes")
            assert call(*words, "--key-env", "RECORD_KEY").code == 0
        made.append((tmp_path / f"{name}.jsonl").read_bytes())
    assert made[0] == made[1]


def test_without_rules_only_who_came_when_is_recorded(call: Call, tmp_path: Path, app: str) -> None:
    fill(tmp_path / "old.db")
    assert call("record", "-o", "r.jsonl", "--url", "sqlite:///old.db").code == 0
    refused = call("replay", "r.jsonl", "--app", app)
    assert refused.code == 2
    assert "none with a payload, since no rules for this surface" in refused.complaint


def test_a_live_recording_has_the_conflict_too(call: Call, live: Path, app: str) -> None:
    played = call(
        "replay", str(live), "--app", app, "--expect", "conflict=1", "--expect", "effects=3", "--json"
    )
    assert (played.code, json.loads(played.out)["verdicts"]) == (0, {"conflict": 1, "replay": 2, "run": 3})


def test_an_expectation_that_fails_is_told_and_ends_with_1(call: Call, live: Path, app: str) -> None:
    played = call("replay", str(live), "--app", app, "--expect", "effects=4")
    assert played.code == 1
    assert "expected effects=4, but it is: 3" in played.err


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_any_order_gives_as_many_effects_and_the_same_seed_the_same_order(
    call: Call, live: Path, app: str, seed: str
) -> None:
    """Shuffled, the other content may come first: then it is the one that runs."""
    words = (
        "replay",
        str(live),
        "--app",
        app,
        "--shuffle",
        "--seed",
        seed,
        "--expect",
        "effects=3",
        "--json",
    )
    once, again = call(*words), call(*words)
    assert once.code == 0
    assert once.out == again.out
    assert json.loads(once.out)["verdicts"]["run"] == 3


def test_a_broken_handler_is_seen_in_the_replay(call: Call, live: Path, tmp_path: Path) -> None:
    """The point of it all: a change that breaks the key makes yesterday's traffic fail the build."""
    (tmp_path / "broken_app.py").write_text(APP.replace('key="{id}"', 'key="{id}:{name}"'))
    played = call("replay", str(live), "--app", "broken_app:gate", "--expect", "effects=3")
    assert played.code == 1
    assert "expected effects=3, but it is: 4" in played.err
    assert "3 events have 4 keys here" in played.err


def test_speed_waits_in_real_time(
    call: Call, live: Path, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a speed, when it is played, then the clock is asked to wait for the scaled distances."""
    from oncegate.clock import SystemClock

    waited: list[float] = []

    async def pause(self: SystemClock, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(SystemClock, "pause_async", pause)
    assert call("replay", str(live), "--app", app, "--speed", "0.001").code == 0
    assert len(waited) == 6
    # 20 s apart at a thousandth of the speed: far apart on the slowest machine
    assert waited == sorted(waited)
    assert 10_000 < waited[1] <= 20_000
    assert 80_000 < waited[-1] <= 100_000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--app", "nowhere:gate"), "there is no module 'nowhere'"),
        (("--app", "x:gate", "--to", "http://127.0.0.1/"), "not allowed with"),
        ((), "one of the arguments --app --to --dry-run is required"),
        (("--dry-run", "--expect", "efects=3"), "'efects=3' is not NAME=N"),
        (("--dry-run", "--expect", "effects=many"), "does not say how many"),
        (("--dry-run", "--speed", "0"), "'0' is not a speed"),
        (("--to", "http://127.0.0.1:9/", "--concurrency", "0"), "'0' is not a number from 1 to 256"),
        (("--dry-run", "--speed", "nan"), "'nan' is not a speed"),
        (("--dry-run", "--speed", "2"), "--speed belongs to --app and --to"),
        (("--dry-run", "--secret-env", "S"), "--secret-env belongs to --to"),
        (("--dry-run", "--concurrency", "2"), "--concurrency belongs to --to"),
        (("--dry-run", "--header", "a: b"), "--header belongs to --to"),
        (("--dry-run", "--url", "sqlite:///x.db"), "--url belongs to --app"),
        (("--to", "ftp://example.com/"), "ftp"),
        (("--to", "http://127.0.0.1:9/", "--secret-env", "NOT_SET"), "the environment has no NOT_SET"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(
    call: Call, live: Path, words: tuple[str, ...], told: str
) -> None:
    ended = call("replay", str(live), *words)
    assert ended.code == 2
    assert told in ended.complaint


def test_a_damaged_or_foreign_file_is_one_line_and_code_4(call: Call, live: Path, tmp_path: Path) -> None:
    (file,) = live.iterdir()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(file.read_bytes()[:-50])
    (tmp_path / "foreign.jsonl").write_text('{"line":"recording","version":9,"began_at":""}\n')
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    for name, told in (("cut", "cut off"), ("foreign", "version '9'"), ("binary", "not the first line")):
        ended = call("replay", f"{name}.jsonl", "--dry-run")
        assert ended.code == 4
        assert told in ended.complaint
    assert call("replay", "cut.jsonl", "--dry-run", "--partial").code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[surfaces.bookings\n", "cannot be used"),
        ("[surfaces.bookings]\nkeeep = []\n", "unknown field `keeep`"),
        ('[surfaces.bookings]\nkeep = "status"\n', "Expected `array`"),
        ('[surfaces.bookings]\nkeep = ["a"]\ndrop = ["a"]\n', "surfaces.bookings: 'a' has two rules"),
        ('[surfaces.bookings]\nkeep = ["card.cvv"]\n', "named like a secret"),
        ('[surfaces.bookings]\ndrop = ["id"]\n', "the gate reads 'id'"),
    ],
)
def test_bad_rules_are_one_line_and_nothing_is_written(
    call: Call, tmp_path: Path, app: str, text: str, told: str
) -> None:
    fill(tmp_path / "old.db")
    (tmp_path / "rules.toml").write_text(text)
    ended = call(
        "record", "-o", "r.jsonl", "--url", "sqlite:///old.db", "--rules", "rules.toml", "--app", app
    )
    assert ended.code == 2
    assert told in ended.complaint
    assert not (tmp_path / "r.jsonl").exists()


def test_times_and_surfaces_choose_what_is_recorded(call: Call, ledger: Path, tmp_path: Path) -> None:
    """Over a ledger with an entry in every state, payloads of which somebody else made."""
    words = ("record", "--surface", "bookings", "--json")
    assert json.loads(call(*words, "-o", "a.jsonl").out)["events"] == 6
    later = ("--since", "2200-01-01T00:00:00Z")
    assert "no arrivals like that" in call(*words, "-o", "b.jsonl", *later).complaint
    assert "--since: " in call(*words, "-o", "b.jsonl", "--since", "yesterday").complaint
    assert call("record", "-o", "b.jsonl", "--surface", "none").code == 2
    everything = call("record", "-o", "c.jsonl", "--json")
    assert everything.code == 0
    assert not (tmp_path / "b.jsonl").exists()


def test_one_key_makes_recordings_that_can_be_compared(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "old.db")
    (tmp_path / "rules.toml").write_text(RULES)
    monkeypatch.setenv("RECORD_KEY", "a key of more than sixteen bytes")
    words = ("record", "--url", "sqlite:///old.db", "--rules", "rules.toml")
    for name in ("a", "b"):
        call(*words, "-o", f"{name}.jsonl", "--key-env", "RECORD_KEY")
    call(*words, "-o", "c.jsonl")
    a, b, c = ((tmp_path / f"{name}.jsonl").read_bytes() for name in "abc")
    assert a == b != c
    assert b"sixteen" not in a


def test_every_documented_expectation_is_a_number_of_the_report() -> None:
    from oncegate.gate.admission import Verdict

    assert {verdict.value for verdict in Verdict} <= set(replay_command.VERDICTS)


def test_a_ledger_that_was_used_is_not_replayed_into(
    call: Call, live: Path, app: str, tmp_path: Path
) -> None:
    """A replay into the ledger of a running system would answer with its outcomes, and add to it."""
    ended = call("replay", str(live), "--app", app, "--url", f"sqlite:///{tmp_path}/live.db")
    assert ended.code == 2
    assert "a replay needs a fresh ledger" in ended.complaint
    fresh = call("replay", str(live), "--app", app, "--url", f"sqlite:///{tmp_path}/fresh.db")
    assert (fresh.code, (tmp_path / "fresh.db").exists()) == (0, True)


def test_a_url_that_nobody_answers_is_no_success(call: Call, live: Path) -> None:
    with contextlib.closing(socket.socket()) as bound:  # and not listening: refused, and nobody else's
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        ended = call("replay", str(live), "--to", f"http://127.0.0.1:{port}/")
    assert ended.code == 1
    assert "6 arrivals were not taken: no connection" in ended.err


def test_a_signed_replay_over_http_is_one_effect_an_event(
    call: Call, live: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a service with a skew limit, when old traffic is played, then it is dated anew."""
    import msgspec

    from oncegate.service.settings import SignatureScheme
    from tests.service.site import HOOKS, Site, settings

    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    monkeypatch.setenv("REPLAY_SECRET", secret)
    surface = msgspec.structs.replace(HOOKS, signature=SignatureScheme.STANDARD_WEBHOOKS, occurred_at="at")
    running = Site(tmp_path, settings(surfaces={"bookings": surface}))
    running.service._environment = {"HOOKS": secret}
    with running.serving() as site:
        url = f"http://127.0.0.1:{site.port}/in/{{surface}}"
        words = ("replay", str(live), "--to", url, "--secret-env", "REPLAY_SECRET", "--json")
        first = call(*words, "--expect", "effects=3")
        at_once = call(*words, "--concurrency", "4")
        unsigned = call("replay", str(live), "--to", url, "--json", "--expect", "effects=3")
    assert (first.code, json.loads(first.out)["verdicts"]) == (0, {"conflict": 1, "replay": 2, "run": 3})
    # And once more, dated anew: known keys with another content, and no effect
    assert (at_once.code, json.loads(at_once.out)["verdicts"]) == (0, {"conflict": 6})
    assert unsigned.code == 1
    assert "6 arrivals were not taken: HTTP 400" in unsigned.err
    assert "the target does not say" in unsigned.err
    assert secret not in first.err + first.out


WRITING_APP = """
from oncegate import Gate
gate = Gate("sqlite:///never-opened.db")
place = []
@gate.handler("bookings", key="{id}", occurred_at="at")
def book(event, once):
    with once.commit() as tx:
        tx.execute("INSERT INTO booked VALUES (?)", (event["id"],))
def use(database):
    place.append(database.url)
"""


def test_a_handler_that_writes_is_replayed_with_its_tables(
    call: Call, live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: SQL from a file and a function that is told where the database is; without them it is refused."""
    (Path.cwd() / "writing_app.py").write_text(WRITING_APP)
    (Path.cwd() / "tables.sql").write_text("CREATE TABLE booked (id text)")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    command = ("replay", str(live), "--app", "writing_app:gate", "--url", "sqlite:///played.db")

    played = call(*command, "--setup", "tables.sql", "--setup", "writing_app:use", "--expect", "run=3")

    assert played.code == 0, played.err
    with contextlib.closing(sqlite3.connect("played.db")) as connection:
        assert connection.execute("SELECT count(*) FROM booked").fetchall() == [(3,)]
    assert sys.modules["writing_app"].place == ["sqlite:///played.db"]
    for given, words in (
        ("nowhere.sql", "--setup: nowhere.sql cannot be read"),
        ("writing_app:place", "is a list, not a function"),
        ("writing_app:nothing", "has no 'nothing'; name the function in it"),
        ("nothing", "does not name a function"),
    ):
        refused = call(*command[:-1], "sqlite:///other.db", "--setup", given)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    assert "--setup belongs to --app" in call("replay", str(live), "--dry-run", "--setup", "tables.sql").err
