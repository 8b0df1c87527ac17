"""What every ledger with open entries does for a gate, its worker and its operators."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from oncegate import Failed, Gate, open_store
from oncegate.cli.main import main
from oncegate.crashpoints import CrashPoints
from oncegate.errors import OncegateError
from oncegate.gate.admission import Verdict
from oncegate.gate.once import Once
from oncegate.maintenance.reconciler import Reconciler
from oncegate.testing import ArmedCrashPoints, ManualClock
from oncegate.testing.clock import SharedClock
from oncegate.testing.forking import Forked

SHORT: dict[str, Any] = {"retention": "72h", "retention_floor": "72h"}


class Shop:
    """A process whose bank honours keys and whose fax cannot be called twice; either may break."""

    def __init__(self, url: str, clock: ManualClock | None = None, **options: Any) -> None:
        self.gate = Gate(store=open_store(url, clock=clock), clock=clock)
        self.bank, self.fax = self.gate.downstream("bank", honours_key="1d"), self.gate.downstream("fax")
        self.calls: Counter[str] = Counter()
        self.breaks: set[str] = set()
        self.gate.handler("orders", key="{id}", **SHORT, **options)(self.run)

    def run(self, event: Any, once: Once) -> str:
        once.effect(self.fax, self.send_fax, event["id"], name="fax")
        return once.effect(self.bank, self.charge, event["id"], name="charge")

    def send_fax(self, order: str) -> str:
        self.calls["fax"] += 1
        if "fax" in self.breaks:
            raise TimeoutError("no answer from the fax")
        return "sent"

    def charge(self, order: str, idempotency_key: str = "") -> str:
        if "bank" in self.breaks:
            raise ConnectionError("the bank is away")
        self.calls[f"charge {order}"] += 1
        return f"paid {order}"

    def admit(self, order: str = "o-1", **more: Any) -> Any:
        return self.gate.admit_sync("orders", {"id": order, **more})

    def recover(self) -> list[str]:
        """One run of the worker's recovery."""
        return [one.became for one in Reconciler(self.gate).run_once().looked]


class OpenEntrySuite:
    """Subclass it with a fixture `url`: the address of an empty ledger."""

    @pytest.fixture(autouse=True)
    def _with_capture(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.ledger, self._capsys = url, capsys

    def call(self, *words: str, code: int = 0) -> str:
        """Calls the command line and returns what it printed."""
        self._capsys.readouterr()
        ended = main([*words, "--url", self.ledger])
        shown = self._capsys.readouterr()
        assert ended == code, shown.err
        return shown.out + shown.err

    def listed(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.call(*words, "--json").splitlines() if line[0] == "{"]

    def in_doubt(self, shop: Shop, order: str = "o-1") -> None:
        shop.breaks = {"fax"}
        with pytest.raises((OncegateError, TimeoutError)):
            shop.admit(order)
        shop.breaks = set()
        assert shop.admit(order).verdict is Verdict.HOLD

    def test_worker_finishes_what_a_crash_left(self) -> None:
        """Without another delivery: the expired claim is found, run again from its event, and settled."""
        clock = ManualClock()
        dead, alive = Shop(self.ledger, clock), Shop(self.ledger, clock)
        dead.charge = _die  # type: ignore[method-assign]
        with pytest.raises(_Died):
            dead.admit()
        assert alive.recover() == [], "its lease runs"
        clock.advance(21)

        assert alive.recover() == ["finished"]
        assert alive.calls == {"charge o-1": 1}, "the fax was recorded as done"
        again = alive.admit()
        assert (again.verdict, again.value) == (Verdict.REPLAY, "paid o-1")
        assert alive.recover() == []

    @pytest.mark.parametrize("point", ["reserve.after", "effect.before", "effect.after", "settle.before"])
    def test_worker_finishes_what_a_killed_process_left(self, point: str, tmp_path: Path) -> None:
        """SIGKILL at each point; no delivery follows. The bank sees one key, the entry has its outcome."""
        clock = SharedClock()
        open_store(self.ledger, clock=clock).connect().close()

        def die() -> None:
            _bank(self.ledger, clock, tmp_path, ArmedCrashPoints(point)).admit_sync(
                "payments", {"id": "p-1"}
            )

        with Forked(die) as child:
            assert child.wait() == -signal.SIGKILL, "the crash point was reached"
        clock.advance(21)

        with _bank(self.ledger, clock, tmp_path) as gate:
            assert [one.became for one in Reconciler(gate).run_once().looked] == ["finished"]
            again = gate.admit_sync("payments", {"id": "p-1"})
        assert (again.verdict, again.value) == (Verdict.REPLAY, "paid p-1")
        assert len(list(tmp_path.iterdir())) == 1

    def test_failed_attempt_is_made_again_by_the_worker(self) -> None:
        """After its backoff, and until it succeeds."""
        clock = ManualClock()
        shop = Shop(self.ledger, clock)
        shop.breaks = {"bank"}
        with pytest.raises(ConnectionError):
            shop.admit()
        shop.breaks = set()
        clock.advance(3600)

        assert shop.recover() == ["finished"]
        assert shop.calls == {"fax": 1, "charge o-1": 1}

    def test_approved_event_is_run_by_the_worker(self) -> None:
        """What is in doubt must be said first; the decision counts once and stands in the history."""
        shop = Shop(self.ledger)
        self.in_doubt(shop)
        (entry,) = self.listed("held", "list")
        words = ("held", "approve", str(entry["id"]), "--reason", "not sent", "--as", "ada")
        assert "may or may not have happened" in self.call(*words, code=1)
        self.call(*words, "--step", "fax=did-not-happen")
        self.call(*words, "--step", "fax=did-not-happen", code=1)

        assert shop.recover() == ["finished"]
        assert shop.calls == {"fax": 2, "charge o-1": 1}
        assert self.listed("held", "list") == []
        shown = json.loads(self.call("entries", "show", entry["key"], "--json"))
        told = [(one["what"], one["actor"]) for one in shown["history"]]
        assert ("approved", "ada") in told
        assert [what for what, _ in told][-2:] == ["taken_up", "committed"]

    def test_rejected_event_is_told_as_failed(self) -> None:
        """With who decided it and why, and never run."""
        shop = Shop(self.ledger)
        self.in_doubt(shop)
        (entry,) = self.listed("held", "list")

        self.call("held", "reject", entry["key"][:12], "--reason", "cancelled", "--as", "ada")

        again = shop.admit()
        assert (again.verdict, again.error) == (Verdict.REPLAY, "rejected by ada: cancelled")
        with pytest.raises(Failed):
            again.result()
        assert (shop.recover(), shop.calls) == ([], {"fax": 1})

    def test_event_that_cannot_be_read_waits_in_quarantine(self) -> None:
        """Released or discarded by a person; what is discarded never runs."""
        shop = Shop(self.ledger, occurred_at="at", skew_max="5m")
        for order in ("late-1", "late-2"):
            assert shop.admit(order, at="2020-01-01T00:00:00Z").verdict is Verdict.QUARANTINE
        shown = self.call("quarantine", "show", str(self.listed("quarantine", "list")[0]["id"]))
        assert "put here by gate" in shown, shown
        released, discarded = self.listed("quarantine", "list")

        self.call("quarantine", "release", released["key"], "--reason", "genuine", "--as", "ada")
        self.call("quarantine", "discard", discarded["key"], "--reason", "a test", "--as", "ada")

        assert shop.recover() == ["finished"]
        assert shop.calls == {"fax": 1, f"charge {released['label'].split()[-1]}": 1}

    def test_many_are_decided_at_once(self) -> None:
        """By a filter, after a plan, entry by entry."""
        shop = Shop(self.ledger, approve_first=True)
        for number in range(5):
            assert shop.admit(f"o-{number}").verdict is Verdict.HOLD

        self.call("held", "approve", "--surface", "orders", "--reason", "seen", "--as", "ada", "--yes")

        assert self.listed("held", "list") == []
        assert len(self.listed("reconcile", "--once")) == 5
        assert shop.recover() == ["finished"] * 5

    def test_what_is_open_is_listed_and_explained(self) -> None:
        """`entries`, `doctor` and the page show it; what the ledger does not have says so in one line."""
        shop = Shop(self.ledger)
        self.in_doubt(shop)
        (entry,) = self.listed("entries", "list")
        assert entry["state"] == "unknown"
        assert "lists open entries only" in self.call("entries", "list")
        assert "1 unknown" in self.call("doctor")
        (line,) = self.call("lanes", "list", code=2).splitlines()
        assert "no lanes in this ledger" in line
        assert "need SQLite or PostgreSQL" in line

        page = shop.gate.dashboard()
        assert _get(page, "/")[0] == 303
        (status, waiting), (found, one) = _get(page, "/waiting"), _get(page, f"/entries/{entry['id']}")
        assert (status, found) == (200, 200)
        assert "o-1" in waiting
        assert "oncegate held approve" in one
        assert "need SQLite or PostgreSQL" in _get(page, "/lanes")[1]

    def test_worker_leaves_out_what_the_ledger_does_not_have(self) -> None:
        """Recovery runs; each other job has its reason."""
        worker = Shop(self.ledger).gate.worker()

        assert "recovery" not in worker.left_out
        assert set(worker.left_out) >= {"scans", "watch", "deliveries", "accepted"}
        assert "no review in this ledger" in worker.left_out["scans"]
        assert ("pruning" in worker.left_out) is not self.ledger.startswith("shards:")


def _bank(url: str, clock: SharedClock, folder: Path, crashes: CrashPoints | None = None) -> Gate:
    """A process whose bank keeps a file for each key."""
    gate = Gate(store=open_store(url, clock=clock), clock=clock, crashpoints=crashes)
    bank = gate.downstream("bank", honours_key="1d")

    def charge(payment: str, idempotency_key: str = "") -> str:
        (folder / idempotency_key.replace("/", "_")).touch()
        return f"paid {payment}"

    @gate.handler("payments", key="{id}", **SHORT)
    def pay(event: Any, once: Once) -> Any:
        return once.effect(bank, charge, event["id"], name="charge")

    return gate


class _Died(BaseException):
    """Plays the end of a process: nothing is recorded after it."""


def _die(order: str, idempotency_key: str = "") -> str:
    raise _Died


def _get(application: Any, path: str) -> tuple[int, str]:
    """Asks an ASGI application in this process."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"localhost")], "scheme": "http", "server": ("localhost", 80),
        "client": ("127.0.0.1", 1), "root_path": "", "http_version": "1.1", "asgi": {"version": "3.0"},
    }  # fmt: skip
    asyncio.run(application(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], body.decode()
