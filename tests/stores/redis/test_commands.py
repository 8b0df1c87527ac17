"""Commands on a Redis ledger: those that it can answer do, the others say which ledgers can."""

from __future__ import annotations

from itertools import count

import pytest

from oncegate.cli.main import main
from oncegate.stores.redis import RedisStore
from tests.support.servers_valkey import ValkeyServer

_NUMBERS = count()


@pytest.fixture
def url(valkey: ValkeyServer) -> str:
    return valkey.url(prefix=f"commands{next(_NUMBERS)}")


def test_migrate_creates_a_ledger_once(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The second time there is nothing to do; looking before does not create it."""
    assert main(["migrate", "--check", "--url", url]) != 0
    assert not RedisStore(url).exists()
    assert main(["migrate", "--url", url]) == 0
    first = capsys.readouterr()
    assert main(["migrate", "--url", url]) == 0

    assert "applied 0001 functions and name of the ledger" in first.out
    assert "was up to date already" in capsys.readouterr().err
    assert RedisStore(url).exists()


def test_doctor_tells_what_the_ledger_can_lose(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings only: durability by the second is a choice, and it is said."""
    main(["migrate", "--url", url])

    assert main(["doctor", "--url", url]) == 0

    out = capsys.readouterr().out
    assert "short windows only (3d), no audit trail" in out
    assert "the last records in a failover" in out
    assert "appendfsync everysec" in out


@pytest.mark.parametrize(
    "words",
    [("entries", "list", "o-1"), ("lanes", "list"), ("signals",), ("duplicates", "list"), ("prune",)],
)
def test_command_that_needs_more_is_one_line(
    url: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the ledgers that have it."""
    more = ("--surface", "x", "--older-than", "90d") if words == ("prune",) else ()

    assert main([*words, *more, "--url", url]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert "in this ledger (redis: claims, open entries only)" in line
    assert line.endswith("need SQLite or PostgreSQL")
