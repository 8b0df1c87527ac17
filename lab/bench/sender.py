"""`oncegate bench sender`: ordered, durable deliveries over HTTP, beside the bare client and procrastinate.

For each number of keys and each delay of the receiver: a backlog is delivered as fast as it goes, then
events are emitted evenly at a part of that rate, which gives latencies. One scene has failures and a key
that never succeeds. For the ratios, the subjects take turns, round after round. How soon a key's next event
follows an acknowledgement is measured apart: at an even rate, where nothing else is waited for, and in a
backlog. Every measurement has a ledger and a receiver of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from lab.bench.peers.environments import NotInstalled
from lab.bench.rivals import run_procrastinate
from lab.bench.sending import IN_FLIGHT, POLICY, bare, drain, endpoint_at, fill, keys_of, peer, trickle
from oncegate.sender.loops import run
from oncegate.testing.postgres import PostgresServer
from oncegate.wiring.sender import Sender

KEYS: Final = (1, 10, 100, 1_000, 10_000)
DELAYS_MS: Final = (0, 5, 50)
SCENE_KEYS: Final = 1_000
SCENE_SECONDS_MIN: Final = 3.0
FAILURES_PER_CENT: Final = 1.0
EVENTS_MAX: Final = 10_000
OVERHEAD_MS: Final = 4.0  # about what an acknowledgement costs; only to choose how many events to send
TRICKLE_SHARE: Final = 0.25  # of the rate that was reached, so that nothing queues up
TRICKLE_MAX: Final = 500.0
FEW_IN_FLIGHT: Final = 16
PAIR: Final = 2  # events of a key at the same moment: the second has its predecessor to wait for
RIVAL_EVENTS: Final = 1_000
RIVAL_AT_ONCE: Final = (16, 64)


@dataclass(slots=True)
class SenderBench:
    """What to measure."""

    keys: tuple[int, ...] = KEYS
    delays_ms: tuple[int, ...] = DELAYS_MS
    seconds: float = 2.0
    rounds: int = 5
    postgres: bool = True
    rivals: bool = True
    failing: bool = True
    talk: Callable[[str], None] = field(default=lambda line: None)
    _server: PostgresServer | None = None

    def run(self) -> dict[str, Any]:
        """Measures everything and returns one document."""
        with PostgresServer() if self.postgres else nullcontext() as self._server:
            stores = ("sqlite", "postgres") if self.postgres else ("sqlite",)
            bares = {delay: self._bare(delay) for delay in self.delays_ms}
            curve = [
                self._point(store, keys, delay)
                for delay in self.delays_ms
                for keys in self.keys
                for store in stores
            ]
            scenes = [self._scene(store) for store in stores if self.failing]
            followed = [self._successors(store) for store in stores]
            turns = [self._turn(number, stores) for number in range(1, self.rounds + 1)]
            rival = self._rival() if self.postgres and self.rivals else None
        document = {"in_flight_max": IN_FLIGHT, "bare": _as_rows(bares), "curve": curve, "failing": scenes}
        document["successors"] = followed
        return {**document, "turns": turns, "procrastinate": rival, "ratios": _ratios(turns, rival)}

    def _turn(self, number: int, stores: tuple[str, ...]) -> dict[str, float]:
        """The bare client and each ledger, one right after the other."""
        self.talk(f"turn {number} of {self.rounds}: {SCENE_KEYS} keys, receiver takes 0 ms")
        found, events = {"bare": self._bare(0)}, _events(SCENE_KEYS, 0, self.seconds)
        for store in stores:
            with self._ledger(store) as url, peer(0) as receiver:
                found[store] = run(_backlog(url, receiver.url, keys_of(SCENE_KEYS), events))[1]
        return {name: round(rate) for name, rate in found.items()}

    def _bare(self, delay_ms: int) -> float:
        with peer(delay_ms) as receiver:
            run(bare(receiver.url, 500))  # connections and caches
            return run(bare(receiver.url, _events(IN_FLIGHT, delay_ms, self.seconds)))

    def _point(self, store: str, keys: int, delay_ms: int) -> dict[str, Any]:
        """One point of the curve: a backlog, then an even flow, each with a receiver of its own."""
        self.talk(f"{store}, {keys} keys, receiver takes {delay_ms} ms")
        events, names = _events(keys, delay_ms, self.seconds), keys_of(keys)
        with self._ledger(store) as url, peer(delay_ms) as receiver:
            emitted, rate = run(_backlog(url, receiver.url, names, events))
            busy = receiver.report()
        flow = min(TRICKLE_MAX, rate * TRICKLE_SHARE)
        with self._ledger(store) as url, peer(delay_ms) as receiver:
            run(_flow(url, receiver.url, names, flow, self.seconds))
            calm = receiver.report()
        return {
            "store": store, "keys": keys, "delay_ms": delay_ms, "events": events, "rate": round(rate),
            "emitted_per_second": round(emitted), "successor_ms": busy["successor_ms"],
            "flow_per_second": round(flow), "p50_ms": calm["p50_ms"], "p99_ms": calm["p99_ms"],
            "reordered": busy["reordered"] + calm["reordered"],
            "repeated": busy["repeated"] + calm["repeated"],
        }  # fmt: skip

    def _scene(self, store: str) -> dict[str, Any]:
        """One in a hundred events fails once, and one key always does; the others must not notice."""
        self.talk(f"{store}, {SCENE_KEYS} keys, {FAILURES_PER_CENT:g} % failures, one poisoned key")
        keys = keys_of(SCENE_KEYS, poisoned=True)
        with self._ledger(store) as url, peer(0, FAILURES_PER_CENT) as receiver:
            run(_flow(url, receiver.url, keys, TRICKLE_MAX, max(self.seconds * 2, SCENE_SECONDS_MIN)))
            found = receiver.report()
        return {"store": store, "keys": SCENE_KEYS, "flow_per_second": round(TRICKLE_MAX), **found}

    def _successors(self, store: str) -> dict[str, Any]:
        """How soon the next event of a key follows an acknowledgement, with 1,000 keys.

        At an even rate it has nothing to wait for but its predecessor. In a backlog the requests under way
        share one processor, and between two of a key there is the time that all of them take in turn.
        """
        self.talk(f"{store}, {SCENE_KEYS} keys: from an acknowledgement to its successor")
        keys, events = keys_of(SCENE_KEYS), _events(SCENE_KEYS, 0, self.seconds)
        with self._ledger(store) as url, peer(0) as receiver:
            run(_flow(url, receiver.url, keys, TRICKLE_MAX, self.seconds, row=PAIR))
            paced = receiver.report()
        backlogs = {most: self._busy(store, keys, events, most) for most in (FEW_IN_FLIGHT, IN_FLIGHT)}
        return {
            "store": store, "keys": SCENE_KEYS, "paced_per_second": round(TRICKLE_MAX),
            "paced_ms": paced["successor_ms"], "paced_p99_ms": paced["successor_p99_ms"],
            "backlogs": [{"in_flight": most, **found} for most, found in backlogs.items()],
        }  # fmt: skip

    def _busy(self, store: str, keys: list[str], events: int, in_flight: int) -> dict[str, Any]:
        with self._ledger(store) as url, peer(0) as receiver:
            _, rate = run(_backlog(url, receiver.url, keys, events, in_flight))
            return {"rate": round(rate), "successor_ms": receiver.report()["successor_ms"]}

    def _rival(self) -> dict[str, Any]:
        """The best of a few settings of procrastinate, on the same server."""
        assert self._server is not None
        best: dict[str, Any] = {}
        for at_once in RIVAL_AT_ONCE:
            self.talk(f"procrastinate, {SCENE_KEYS} keys, {at_once} at once")
            with peer(0) as receiver:
                database = self._server.new_database()
                try:
                    found = run_procrastinate(database, receiver.url, SCENE_KEYS, RIVAL_EVENTS, at_once)
                except NotInstalled as reason:
                    return {"missing": str(reason)}
                seen = receiver.report()
            result = {"rate": round(found["rate"]), "at_once": at_once, "events": found["count"]}
            result |= {"reordered": seen["reordered"], "repeated": seen["repeated"]}
            best = max(best, result, key=lambda one: one.get("rate", 0))
        return best

    @contextmanager
    def _ledger(self, store: str) -> Iterator[str]:
        if store == "postgres":
            assert self._server is not None
            yield self._server.new_database()
            return
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-") as folder:
            yield f"sqlite:///{folder}/ledger.db"


async def _backlog(
    ledger: str, hook: str, keys: list[str], events: int, in_flight: int = IN_FLIGHT
) -> tuple[float, float]:
    with Sender(ledger, policy=POLICY) as sender:
        endpoint_at(sender, hook, in_flight)
        return await fill(sender, keys, events), await drain(sender, events)


async def _flow(
    ledger: str, hook: str, keys: list[str], per_second: float, seconds: float, *, row: int = 1
) -> None:
    with Sender(ledger, policy=POLICY) as sender:
        endpoint_at(sender, hook)
        await trickle(sender, keys, per_second, seconds, row)


def _events(keys: int, delay_ms: float, seconds: float) -> int:
    """How many events take about so many seconds; at least one for each key, at most EVENTS_MAX."""
    most = min(keys, IN_FLIGHT) * 1000 / (delay_ms + OVERHEAD_MS)
    wanted = int(min(most, 4_000) * seconds)
    return min(EVENTS_MAX, max(20, keys, wanted - wanted % keys))


def _as_rows(bares: dict[int, float]) -> list[dict[str, float]]:
    return [{"delay_ms": delay, "rate": round(rate)} for delay, rate in bares.items()]


def _ratios(turns: list[dict[str, float]], rival: dict[str, Any] | None) -> dict[str, float]:
    """Medians over the turns."""
    stores = [name for name in turns[0] if name != "bare"]
    ratios = {
        f"{store}, {SCENE_KEYS} keys / bare client": median(turn[store] / turn["bare"] for turn in turns)
        for store in stores
    }
    if rival and "rate" in rival:
        ours = median(turn["postgres"] for turn in turns)
        ratios["postgres / procrastinate with a lock per key"] = ours / rival["rate"]
    return {name: round(value, 2) for name, value in ratios.items()}
