"""The run of the store's tests on a distribution's server: which it takes, and what it says without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import stock_server


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where servers would be installed."""
    monkeypatch.setattr(stock_server, "newest_programs", lambda: None)
    monkeypatch.setattr(stock_server, "INSTALLED", tmp_path)
    return tmp_path


def test_newest_server_is_taken_and_clients_alone_are_none(tmp_path: Path) -> None:
    for version, program in (("9.6", "postgres"), ("15", "postgres"), ("17", "psql")):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / program).touch()

    assert stock_server.newest_programs(tmp_path) == tmp_path / "15" / "bin"


@pytest.mark.usefixtures("installed")
def test_without_a_server_the_run_is_skipped_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(stock_server.REQUIRE_VARIABLE, raising=False)
    assert stock_server.main([]) == 0
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.usefixtures("installed")
def test_without_a_server_the_run_fails_where_one_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stock_server.REQUIRE_VARIABLE, "1")
    assert stock_server.main([]) == 1


def test_every_named_file_is_there() -> None:
    """A file that was renamed would end the run, but only where a server is installed."""
    root = Path(__file__).parents[1]
    assert [name for name in stock_server.TESTS if not (root / name).is_file()] == []
