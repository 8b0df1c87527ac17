"""`oncegate bench all`: everything in one run and document, section by section.

Sections are measured one after the other; within a round, limits and subjects take turns. Nothing here
prints or judges: `targets` does the one, `page` the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from lab.bench.cost import measure_cost
from lab.bench.growth import LANES, SIZES, Growth
from lab.bench.history import measure_history
from lab.bench.http import HttpBench
from lab.bench.journal import EVENTS, measure_journal
from lab.bench.limits import Limits
from lab.bench.machine import describe_machine, load_average
from lab.bench.peers.faults import Scenes
from lab.bench.peers.measuring import CONCURRENCIES, Measuring
from lab.bench.peers.roster import OURS, PEERS, Peer, Variant
from lab.bench.postgres import PostgresBench
from lab.bench.redis import RedisBench
from lab.bench.sender import SenderBench
from lab.bench.shards import ShardsBench
from lab.bench.sources import SourcesBench
from lab.bench.targets import judge
from oncegate.bench.gate import GateBench
from oncegate.clock import SystemClock
from oncegate.testing.postgres import PostgresServer

SECTIONS: Final = (
    "cost",
    "streams",
    "gate",
    "modes",
    "faults",
    "growth",
    "http",
    "sender",
    "sources",
    "history",
    "ledgers",
)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    name: str
    rounds: int
    seconds: float  # a run
    concurrencies: tuple[int, ...] = CONCURRENCIES
    sizes: tuple[int, ...] = SIZES
    lanes: tuple[int, ...] = LANES
    requests: int = 20_000  # over HTTP, a run
    sender_keys: tuple[int, ...] = (1,)
    cost_events: int = 20_000
    fill_seconds_max: float = 420.0  # for one size of one store
    gate_scale: float = 1.0  # of the events that `bench gate` admits in a round
    size_keys: int = 100_000
    mode_seconds: int = 2
    records: int = 1_000_000  # of the sealed journal
    objects: int = 100_000  # of a snapshot


EXTENTS: Final = {
    "quick": Extent(
        "quick",
        1,
        0.2,
        (1, 64),
        (2_000, 20_000),
        (1, 1_000),
        1_500,
        (),
        3_000,
        420.0,
        0.05,
        5_000,
        1,
        50_000,
        10_000,
    ),
    "short": Extent("short", 3, 0.5, sizes=SIZES[:3], requests=8_000, fill_seconds_max=90.0),
    "full": Extent("full", 5, 1.0),
}


@dataclass(slots=True)
class WholeBench:
    """What to measure."""

    extent: Extent
    peers: tuple[Peer, ...] = PEERS
    install: bool = False
    postgres: bool = True
    sections: tuple[str, ...] = SECTIONS
    talk: Callable[[str], None] = field(default=lambda line: None)
    _server: PostgresServer | None = None
    _failed: dict[str, str] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Measures every section that is wanted and returns one document."""
        clock, took = SystemClock(), dict[str, float]()
        begun = clock.ticks_ms()
        with PostgresServer() if self.postgres else nullcontext() as self._server:
            document: dict[str, Any] = {
                "machine": describe_machine(self._server),
                "extent": asdict(self.extent),
            }
            for name in (name for name in SECTIONS if name in self.sections):
                self.talk(f"--- {name}")
                started = clock.ticks_ms()
                document |= self._measured(name)
                took[name] = round((clock.ticks_ms() - started) / 1000, 1)
                self.talk(f"--- {name} took {took[name]:.0f} s")
        document |= {"load_after": load_average(), "failed": self._failed, "seconds": took}
        document["minutes"] = round((clock.ticks_ms() - begun) / 60_000, 1)
        return {**document, "targets": [one.as_json() for one in judge(document)]}

    def _measured(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = getattr(self, f"_{name}")()
        except Exception as error:  # noqa: BLE001 - half an hour of other sections is not lost with one
            self._failed[name] = f"{type(error).__name__}: {error}"[:300]
            self.talk(f"{name} could not be measured: {self._failed[name]}")
            return {}
        return found

    def _cost(self) -> dict[str, Any]:
        return {"cost": measure_cost(self.extent.cost_events)}

    def _streams(self) -> dict[str, Any]:
        measuring = self._measuring()
        limits = Limits(self._server, self.extent.seconds)
        for number in range(1, self.extent.rounds + 1):
            self.talk(f"round {number} of {self.extent.rounds}")
            limits.take_round()
            measuring.take_round()
        return {"limits": limits.as_json(), "subjects": [one.as_json() for one in measuring.turns]}

    def _measuring(self) -> Measuring:
        extent = self.extent
        measuring = Measuring(
            self.peers, self._server, extent.seconds, extent.concurrencies, self.install, self.talk
        )
        measuring.prepare()
        return measuring

    def _gate(self) -> dict[str, Any]:
        extent = self.extent
        bench = GateBench(
            url=None,
            rounds=extent.rounds,
            size_keys=extent.size_keys,
            scale=extent.gate_scale,
            talk=self.talk,
        )
        return {"gate": bench.run()}

    def _modes(self) -> dict[str, Any]:
        if not self.postgres:
            return {}
        rounds = min(3, self.extent.rounds)
        return {"modes": PostgresBench(rounds, self.extent.mode_seconds, talk=self.talk).run()}

    def _faults(self) -> dict[str, Any]:
        prepared = self._measuring().turns
        ready = [(one.peer, one.variant) for one in prepared if not one.missing]
        missing = {one.peer.name: one.missing for one in prepared if one.missing}
        scenes = Scenes(self._server, self.talk, quick=self.extent.name == "quick")
        return {"faults": scenes.run(_one_each(ready)), "faults_missing": missing}

    def _growth(self) -> dict[str, Any]:
        extent = self.extent
        return {
            "growth": Growth(
                extent.sizes, extent.lanes, self._server, self.talk, extent.fill_seconds_max
            ).run()
        }

    def _ledgers(self) -> dict[str, Any]:
        """Redis beside Powertools, and a sharded ledger beside one database."""
        rounds, seconds = min(3, self.extent.rounds), max(0.5, self.extent.seconds)
        found: dict[str, Any] = {}
        if self.peers:
            found["redis"] = RedisBench(rounds, seconds, self.install, self.talk).run()
        if self.postgres:
            found["shards"] = ShardsBench(rounds, 2 * seconds, self.talk).run()
        return {"ledgers": found}

    def _http(self) -> dict[str, Any]:
        bench = HttpBench(
            requests=self.extent.requests,
            rounds=min(3, self.extent.rounds),
            postgres=self.postgres,
            talk=self.talk,
            processes=3 if self.extent.name == "full" else 1,
        )
        return {"http": bench.run()}

    def _sender(self) -> dict[str, Any]:
        bench = SenderBench(
            keys=self.extent.sender_keys,
            delays_ms=(0,),
            seconds=max(0.5, self.extent.seconds),
            rounds=min(3, self.extent.rounds),
            postgres=self.postgres,
            rivals=self.install and bool(self.peers) and self.extent.name != "quick",
            failing=self.extent.name == "full",
            talk=self.talk,
        )
        return {"sender": bench.run()}

    def _sources(self) -> dict[str, Any]:
        extent = self.extent
        bench = SourcesBench(
            events=500 if extent.name == "quick" else 4_000,
            rounds=min(3, extent.rounds),
            postgres=self.postgres,
            talk=self.talk,
        )
        return {"sources": bench.run()}

    def _history(self) -> dict[str, Any]:
        extent = self.extent
        events = round(EVENTS * extent.gate_scale)
        return {
            "journal": measure_journal(extent.records, events, extent.rounds),
            "history": measure_history(extent.objects, extent.objects // 100),
        }


def _one_each(subjects: list[tuple[Peer, Variant]]) -> list[tuple[Peer, Variant]]:
    """Ours on every store; a peer on the store that it offers for several machines, at equal durability."""
    chosen: dict[tuple[str, str], tuple[Peer, Variant]] = {}
    for peer, variant in subjects:
        place = (peer.name, variant.store if peer is OURS else "")
        if place not in chosen or variant.store == "postgres" or variant.durability == "ours":
            chosen[place] = (peer, variant)
    return list(chosen.values())
