"""Sources as users meet them: gate.consume, the worker, oncegate.toml, and `oncegate sources`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncegate import ConfigError, Gate, UsageError
from oncegate.cli.main import main
from oncegate.service.config_loader import read_configuration
from oncegate.service.validation import read_and_check
from oncegate.sources.kinds import KINDS, make_source
from oncegate.sources.status import SourceStatus, posting_of
from oncegate.testing import MemorySource
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.sources.test_nats import Stream
from tests.support.servers import Nats

SURFACE = "orders"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as opened:
        opened.engine.store.connect().close()

        @opened.handler(SURFACE, key="{order}")
        async def book(event: Any, once: Any) -> None: ...

        yield opened


async def until(condition: Any) -> None:
    """Waits in the loop for a condition, with a deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  the memory source has no event for it
            await asyncio.sleep(0.001)


def test_the_worker_consumes_what_the_program_names(gate: Gate) -> None:
    """As the job `sources`, and it drains when the block ends."""

    async def scene() -> None:
        source = MemorySource()
        gate.consume(source, surface=SURFACE)
        source.send(b'{"order": 1}')
        async with gate.worker(only=["sources"]):
            await until(lambda: source.acked == ["m1"])
        assert source.is_closed

    asyncio.run(scene())


def test_a_worker_without_sources_leaves_the_job_out(gate: Gate) -> None:
    """And says why; to ask for it is a mistake."""
    assert "gate.consume" in gate.worker().left_out["sources"]
    with pytest.raises(ConfigError, match=r"gate\.consume"):
        gate.worker(only=["sources"])


def test_an_async_handler_needs_the_loop_of_its_program(gate: Gate) -> None:
    """A plain `with` would run it in another loop."""
    gate.consume(MemorySource(), surface=SURFACE)
    with pytest.raises(UsageError, match="async with"), gate.worker(only=["sources"]):
        pass


def test_a_plain_handler_is_consumed_in_a_plain_program(tmp_path: Path) -> None:
    """The worker has a thread with a loop of its own for it."""
    ran: list[int] = []
    with Gate(f"sqlite:///{tmp_path}/plain.db") as gate:

        @gate.handler(SURFACE, key="{order}")
        def book(event: Any) -> None:
            ran.append(event["order"])

        async def prepared() -> MemorySource:
            return MemorySource()

        source = asyncio.run(prepared())
        source.send(b'{"order": 1}')
        gate.consume(source, surface=SURFACE)
        with gate.worker(only=["sources"]):
            from oncegate.testing import wait_until

            wait_until(lambda: source.acked == ["m1"])
    assert ran == [1]


def test_two_sources_of_one_name_and_unknown_surfaces_are_refused(gate: Gate) -> None:
    """At once, not when the worker starts."""
    gate.consume(MemorySource(), surface=SURFACE)
    with pytest.raises(ConfigError, match="consumed already"):
        gate.consume(MemorySource(), surface=SURFACE)
    gate.consume(MemorySource(), surface=SURFACE, name="another")
    with pytest.raises(ConfigError, match="unknown"):
        gate.consume(MemorySource(), surface="unknown")


def cli(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    told = capsys.readouterr()
    return code, told.out, told.err


def test_operators_list_pause_and_resume(gate: Gate, tmp_path: Path, capsys: Any) -> None:
    """The list has what consumers said last; a pause names who and why, and is in the journal."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    assert "no consumer has reported" in cli(capsys, "sources", "list", "--url", url)[2]
    code, _, error = cli(capsys, "sources", "pause", "sqs:orders", "--reason", "x", "--url", url)
    assert (code, "no consumer of a source 'sqs:orders'" in error) == (2, True)
    status = SourceStatus(
        surface=SURFACE, kind="sqs", queue="orders", lag=3, in_flight=2, poison=1, last_error="Boom: bang"
    )
    with closing(gate.engine.store.connect()) as session, session.unit():
        session.post(posting_of("sqs:orders", status, gate.engine.clock.wall_ms()))
    _, out, _ = cli(capsys, "sources", "list", "--url", url)
    assert "sqs:orders" in out
    assert "Boom: bang" in out
    _, out, _ = cli(capsys, "sources", "list", "--json", "--url", url)
    told = json.loads(out)
    assert (told["lag"], told["in_flight"], told["poison"], told["silent"]) == (3, 2, 1, False)
    pause = ("sources", "pause", "sqs:orders", "--reason", "a bad deploy", "--as", "ann", "--url", url)
    assert cli(capsys, *pause)[0] == 0
    assert cli(capsys, *pause)[0] == 1
    assert "paused by ann" in cli(capsys, "sources", "list", "--url", url)[2]
    assert "a bad deploy" in cli(capsys, "journal", "--url", url)[1]
    assert cli(capsys, "sources", "resume", "sqs:orders", "--as", "ann", "--url", url)[0] == 0
    assert cli(capsys, "sources", "resume", "sqs:orders", "--as", "ann", "--url", url)[0] == 1


TOML = """
[surfaces.orders]
key = "{order}"
tenant = "acme"

[sources.cis]
kind = "nats"
surface = "orders"
url = "$QUEUE_URL"
stream = "STREAM"
durable = "worker"
concurrency = 4
"""


def check(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "oncegate.toml"
    path.write_text(text, "utf-8")
    _, mistakes = read_and_check(path, {"QUEUE_URL": "nats://127.0.0.1:4222"})
    return [str(one) for one in mistakes]


def test_a_source_in_the_settings_needs_no_program(tmp_path: Path) -> None:
    """Its surface needs no signature: no webhook comes in there."""
    assert check(tmp_path, TOML) == []
    settings = read_configuration(tmp_path / "oncegate.toml", {}).settings
    assert settings.sources["cis"].concurrency == 4


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"nats"', '"pigeon"', "not known; use one of"),
        ('surface = "orders"', 'surface = "other"', "there is no surface other"),
        ('durable = "worker"', "", "needs durable"),
        ('durable = "worker"', 'durable = "worker"\nqueue = "q"', "takes no queue"),
        ("$QUEUE_URL", "$NO_SUCH", "the environment has no NO_SUCH"),
        ("concurrency = 4", "concurrency = 0", "concurrency"),
        ("concurrency = 4", 'poison = "drop"', "poison"),
        ("concurrency = 4", 'order_by = "{"', "sources.cis"),
        ('[sources.cis]\nkind = "nats"', '[sources.cis]\nkimd = "nats"', "kimd"),
    ],
)
def test_mistakes_in_a_source_are_told_with_its_name(tmp_path: Path, old: str, new: str, why: str) -> None:
    """Before anything is served."""
    told = "\n".join(check(tmp_path, TOML.replace(old, new)))
    assert why in told, told


def test_a_surface_with_neither_signature_nor_source_is_a_mistake(tmp_path: Path) -> None:
    """Nothing could bring its events."""
    text = TOML.partition("[sources.cis]")[0]
    assert "signature is missing" in "\n".join(check(tmp_path, text))


def test_every_kind_is_an_adapter_with_an_install_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its client library, opening it names the exact command."""
    given = {"url": "x://127.0.0.1:1/q", "stream": "s", "durable": "d", "group": "g", "queue": "q"}
    for kind, known in KINDS.items():
        url = "kafka://127.0.0.1:1/q" if kind == "kafka" else given["url"]
        source: Any = make_source(kind, {name: given[name] for name in known.needs} | {"url": url})
        assert source.name.startswith(f"{kind}:")
        module = __import__(f"oncegate.sources.{known.module}", fromlist=["INSTALL"])
        assert f"pip install 'oncegate[{kind}]'" in module.INSTALL


def test_sources_are_checked_without_receiving(
    tmp_path: Path, nats: Nats, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line a source, and the exit code says whether all can be consumed."""
    stream = Stream(nats.url)
    text = TOML.replace('"STREAM"', f'"{stream.name}"')
    (tmp_path / "oncegate.toml").write_text(f'url = "sqlite:///{tmp_path}/ledger.db"\n{text}', "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUEUE_URL", nats.url)
    code, out, _ = cli(capsys, "sources", "check")
    assert (code, out.startswith("cis: ok: nats at ")) == (0, True), out
    stream.consumer(durable_name="other", max_deliver=3)
    (tmp_path / "oncegate.toml").write_text(
        f'url = "sqlite:///{tmp_path}/ledger.db"\n' + text.replace('"worker"', '"other"'), "utf-8"
    )
    code, out, _ = cli(capsys, "sources", "check")
    assert code == 1
    assert "cis: cannot be consumed" in out
    assert "max_deliver=3" in out
