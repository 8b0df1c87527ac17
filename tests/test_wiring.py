"""Addresses: a good one becomes a store, a bad one a clear line that gives no secret away."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oncegate import ConfigError, Gate, Sender, StoreUnavailable, Verdict, open_store
from oncegate.config import store_url
from oncegate.errors import BadUrl
from oncegate.store import Durability
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock

SECRET = "hunter2"


def path_of(url: str) -> str:
    """The file behind an address."""
    store = open_store(url)
    assert isinstance(store, SqliteStore)
    return str(store.path)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///ledger.db", "ledger.db"),
        ("sqlite:///data/ledger.db", "data/ledger.db"),
        ("sqlite:////var/lib/ledger.db", "/var/lib/ledger.db"),
        ("SQLite:///ledger.db", "ledger.db"),
        ("sqlite:///my%20ledger%23%3F.db", "my ledger#?.db"),
        ("sqlite:///käse.db", "käse.db"),
        ("sqlite:///ledger.db?synchronous=FULL", "ledger.db"),
    ],
)
def test_an_address_names_a_file(url: str, path: str) -> None:
    """Three slashes for a relative path, four for an absolute one; nothing is opened yet."""
    assert path_of(url) == path
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("option", "durability"),
    [
        ("", Durability.POWER_LOSS),
        ("?synchronous=full", Durability.POWER_LOSS),
        ("?synchronous=EXTRA", Durability.POWER_LOSS),
        ("?synchronous=NORMAL", Durability.PROCESS_CRASH),
    ],
)
def test_durability_is_full_unless_the_address_says_otherwise(option: str, durability: Durability) -> None:
    """I3: never traded silently."""
    assert open_store(f"sqlite:///ledger.db{option}").capabilities.durability is durability


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "ledger.db",
        "/var/lib/ledger.db",
        "sqlite:ledger.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/ledger.db",
        "mysql://host/ledger",
        "://",
        "sqlite:///a#b.db",
        "sqlite:///a%00b.db",
        " sqlite:///ledger.db",
    ],
)
def test_an_address_that_names_no_store_is_refused(url: str) -> None:
    """One clear line with what was given and what is wanted."""
    with pytest.raises(BadUrl) as raised:
        open_store(url)
    assert "\n" not in str(raised.value)
    assert "sqlite:/" in str(raised.value) or "%23" in str(raised.value)


def test_an_unknown_option_is_refused_by_name() -> None:
    """A misspelt setting that is quietly ignored is worse than none."""
    with pytest.raises(BadUrl, match="unknown option 'sync'; known: synchronous"):
        open_store("sqlite:///ledger.db?sync=FULL")


def test_an_option_with_a_value_that_cannot_be_used_is_refused() -> None:
    """`OFF` would lose committed records on a crash."""
    for value in ("OFF", "0", "sometimes"):
        with pytest.raises(ConfigError, match="choose one of NORMAL, FULL, EXTRA"):
            open_store(f"sqlite:///ledger.db?synchronous={value}")


@pytest.mark.parametrize(
    "url", ["sqlite://[::1/ledger.db", "sqlite:///ledger.db?sync", "sqlite:///ledger.db?sync="]
)
def test_an_address_that_cannot_be_taken_apart_is_refused(url: str) -> None:
    """Never a traceback, never an option that is quietly dropped."""
    with pytest.raises(BadUrl):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://user:{SECRET}@host/ledger",
        f"sqlite://user:{SECRET}@host/ledger.db",
        f"mysql://user:{SECRET}@host/ledger?x=a@b",
        f"mysql://user:p@{SECRET}@host/ledger",
        f"user:{SECRET}@host/ledger",
        f"mysql://host/ledger?password={SECRET}",
        f"sqlite:///ledger.db?key={SECRET}",
        f"sqlite:///ledger.db#{SECRET}",
    ],
)
def test_a_refused_address_does_not_give_its_secrets_away(url: str) -> None:
    """It ends in logs; wiring.py/_shown hides what may be a password, wherever it stands."""
    with pytest.raises(BadUrl) as raised:
        open_store(url)
    assert SECRET not in str(raised.value)


def test_a_long_address_is_shown_in_part() -> None:
    """One line stays one line."""
    with pytest.raises(BadUrl) as raised:
        open_store("x" * 10_000)
    assert len(str(raised.value)) < 300


def test_the_address_is_given_or_in_the_environment_or_the_folder() -> None:
    """In that order; an empty one is none."""
    environment = {"ONCEGATE_URL": "sqlite:///from-environment.db"}
    assert store_url("sqlite:///given.db", environment) == "sqlite:///given.db"
    assert store_url(None, environment) == "sqlite:///from-environment.db"
    assert store_url("", environment) == "sqlite:///from-environment.db"
    assert store_url(None, {}) == "sqlite:///oncegate.db"
    assert store_url(None, {"ONCEGATE_URL": ""}) == "sqlite:///oncegate.db"


def test_a_gate_without_an_address_uses_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONCEGATE_URL reaches the gate; without it the ledger is in the working folder."""
    monkeypatch.chdir(tmp_path)
    for variable, file in ((f"sqlite:///{tmp_path}/named.db", "named.db"), (None, "oncegate.db")):
        if variable is None:
            monkeypatch.delenv("ONCEGATE_URL", raising=False)
        else:
            monkeypatch.setenv("ONCEGATE_URL", variable)
        with Gate() as gate:
            gate.handler("s", key="{id}")(lambda event: None)
            assert gate.admit_sync("s", {"id": 1}).verdict is Verdict.RUN
        assert (tmp_path / file).is_file()


def test_the_clock_reaches_the_store(tmp_path: Path) -> None:
    """One clock for the gate and its ledger: leases and the ledger's own time agree."""
    clock, url = ManualClock(), f"sqlite:///{tmp_path}/ledger.db"
    with Gate(url, clock=clock) as gate:
        session = gate.engine.store.connect()
        before = session.now_ticks()
        clock.advance(5)
        assert session.now_ticks() == before + 5000
        session.close()


def test_a_store_can_be_handed_over(tmp_path: Path) -> None:
    """For stores that an address cannot describe."""
    store = SqliteStore(tmp_path / "ledger.db")
    with Gate(store=store) as gate:
        assert gate.engine.store is store


def test_the_address_of_a_store_is_shown_without_secrets(tmp_path: Path) -> None:
    """What `doctor` and the logs show."""
    store = open_store(f"sqlite:///{tmp_path}/ledger.db?synchronous=NORMAL")
    assert store.address == f"sqlite:///{tmp_path}/ledger.db"


def test_a_folder_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    """One line with the cause and the next step; nothing is run."""
    runs: list[object] = []
    with Gate(f"sqlite:///{tmp_path}/no/such/folder/ledger.db") as gate:
        gate.handler("s", key="{id}")(runs.append)
        with pytest.raises(StoreUnavailable, match="check that its folder exists"):
            gate.admit_sync("s", {"id": 1})
    assert not runs


def test_a_sender_without_its_parser_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and not for each event that is never delivered."""
    monkeypatch.setitem(sys.modules, "httptools", None)
    with (
        Sender(f"sqlite:///{tmp_path / 'oncegate.db'}") as sender,
        pytest.raises(ConfigError, match=r"pip install 'oncegate\[sender\]'"),
    ):
        sender.delivering()
