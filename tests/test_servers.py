"""The test servers start, survive kill -9 and are demanded where they must be there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support import server_programs
from tests.support.kafka_mock import NOT_ENOUGH_REPLICAS, PRODUCE, MockKafka
from tests.support.servers import (
    REQUIRE_VARIABLE,
    MiniStack,
    Nats,
    Server,
    Valkey,
    check_present,
    listens,
    running,
)


class Absent(Server):
    """A server that no machine has."""

    name, install, variable = "absent", "make servers SERVERS=absent", "ONCEGATE_TEST_ABSENT"

    @classmethod
    def is_present(cls) -> bool:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Valkey, Nats, MiniStack])
def test_a_killed_server_comes_back_on_its_port(kind: type[Server]) -> None:
    """Clients find it at the same address, and nothing of it is left at the end."""
    with running(kind) as server:
        url = server.url
        server.kill()
        assert not listens(server.port)
        server.start()
        assert server.url == url
        assert listens(server.port)
    assert not listens(server.port)
    assert not server.folder.exists()


def test_valkey_keeps_what_it_acknowledged_over_kill() -> None:
    """The settings of the fixture flush each write before the reply."""
    with running(Valkey) as server:
        assert ask(server, b"SET k v\r\n") == b"+OK\r\n"
        server.kill()
        server.start()
        assert ask(server, b"GET k\r\n") == b"$1\r\nv\r\n"


def ask(server: Server, words: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(words)
        return connection.recv(4096)


def test_an_absent_server_skips_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the server and the command."""
    monkeypatch.setenv(REQUIRE_VARIABLE, "ministack")
    with pytest.raises(pytest.skip.Exception, match="absent was not found: make servers SERVERS=absent"):
        check_present(Absent)


def test_an_absent_server_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """What CI requires cannot go missing unseen."""
    monkeypatch.setenv(REQUIRE_VARIABLE, "ministack, absent")
    with pytest.raises(pytest.fail.Exception, match="absent was not found"):
        check_present(Absent)


def test_a_given_server_is_used_and_never_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that wants to kill it is skipped."""
    monkeypatch.setenv(Absent.variable, "absent://host")
    with running(Absent) as server:
        assert server.url == "absent://host"
        with pytest.raises(pytest.skip.Exception, match="not ours to kill"):
            server.kill()


def test_an_installed_server_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make servers` twice installs once; another version is installed again."""
    monkeypatch.setenv(server_programs.FOLDER_VARIABLE, str(tmp_path))
    made: list[Path] = []

    def pretend(folder: Path) -> None:
        folder.mkdir()
        made.append(folder)

    monkeypatch.setitem(server_programs._INSTALLERS, "ministack", pretend)
    server_programs.install("ministack")
    server_programs.install("ministack")
    assert made == [tmp_path / "ministack"]
    monkeypatch.setitem(server_programs.VERSIONS, "ministack", "ministack==2")
    server_programs.install("ministack")
    assert len(made) == 2


def test_the_kafka_mock_fails_on_command(kafka: MockKafka) -> None:
    """An injected error reaches the client, and the log has the record once."""
    from confluent_kafka import Producer

    kafka.create("orders")
    kafka.fail(PRODUCE, NOT_ENOUGH_REPLICAS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "retries": 0, "log_level": 0})
    reports: list[tuple[object, int | None]] = []
    for _ in range(2):
        producer.produce("orders", b"v", on_delivery=lambda error, m: reports.append((error, m.offset())))
        producer.flush(10)
    (refused, _), (accepted, offset) = reports
    assert refused is not None
    assert (accepted, offset) == (None, 0)
