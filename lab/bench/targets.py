"""The aims of the benchmarks, judged on one run's document: met or missed, and by how much.

Pure: a document in, verdicts out. What was not measured is said to be so; it is never taken as met.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from lab.bench.limits import DRIVER_LOOP, SQLITE_LOOP
from lab.bench.sources import ADDED_MS_AIM, AIMS

PGBENCH_TWO: Final = "pgbench, two transactions"
OURS: Final = "oncegate"
Cells = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """One aim: `measured` must be at least, or at most, `aim`; None was not measured."""

    what: str
    aim: float
    measured: float | None
    at_least: bool = True
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """Whether it is met; None if it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.aim if self.at_least else self.measured <= self.aim

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "met": self.met}


def judge(document: dict[str, Any]) -> list[Target]:
    """Every aim, in the order of the page."""
    found = _Found(document)
    return [
        *_against_limits(found),
        *_gate(document),
        *_modes(document),
        *_against_peers(found),
        *_replays(found),
        *_cost(document),
        *_cells(document),
        *_http(document),
        *_sender(document),
        *_sources(document),
        *_history(document),
    ]


class _Found:
    """Looks figures up in a document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._limits: Cells = document.get("limits", [])
        self._subjects: Cells = document.get("subjects", [])

    def limit(self, name: str, what: str, best: Any = max) -> float | None:
        """The best figure of a limit over its concurrencies."""
        return best((row[what] for row in self._limits if row["name"] == name), default=None)  # type: ignore[no-any-return]

    def ours(self, store: str, stream: str, what: str, best: Any = max) -> tuple[float | None, int]:
        """A figure of ours at the highest concurrency, or at 1 where the best is the lowest."""
        cells = [c for s in self._of(OURS, store) for c in s["cells"] if c["stream"] == stream]
        if not cells:
            return None, 0
        cell = best(cells, key=lambda one: one["concurrency"])
        return cell[what], cell["concurrency"]

    def peer(self, name: str, store: str, durability: str = "ours") -> tuple[float | None, int]:
        """A peer's fresh events a second at its best concurrency."""
        rates = [
            (cell["rate"], cell["concurrency"])
            for subject in self._of(name, store)
            if subject["durability"] == durability
            for cell in subject["cells"]
            if cell["stream"] == "fresh"
        ]
        return max(rates, default=(None, 0))

    def names(self, store: str) -> set[str]:
        """The peers that were measured on a store."""
        return {one["name"] for one in self._subjects if one["store"] == store} - {OURS}

    def _of(self, name: str, store: str) -> Cells:
        return [one for one in self._subjects if (one["name"], one["store"]) == (name, store)]


def _over(above: float | None, below: float | None) -> float | None:
    return round(above / below, 2) if above is not None and below else None


def _against_limits(found: _Found) -> Iterator[Target]:
    rate, tasks = found.ours("postgres", "fresh", "rate")
    two = found.limit(PGBENCH_TWO, "rate")
    yield Target(
        f"PostgreSQL at {tasks}: events/s over pgbench's best, two transactions", 3, _over(rate, two)
    )
    for store, loop in (("sqlite", SQLITE_LOOP), ("postgres", DRIVER_LOOP)):
        own, _ = found.ours(store, "fresh", "p50_ms", min)
        what = f"{store} at 1: median latency over the bare driver's ({loop})"
        yield Target(what, 1.4, _over(own, found.limit(loop, "p50_ms")), at_least=False)
    own, _ = found.ours("postgres", "fresh", "p50_ms", min)
    bare = found.limit(PGBENCH_TWO, "p50_ms", min)
    yield Target(
        "postgres at 1: median latency over one pgbench client's", 1.4, _over(own, bare), at_least=False
    )


def _against_peers(found: _Found) -> Iterator[Target]:
    rate, tasks = found.ours("postgres", "fresh", "rate")
    for name, aim in (("exactly-once", 10), ("dbos", 50)):
        theirs, at = found.peer(name, "postgres")
        what = f"PostgreSQL at {tasks}: events/s over {name} at its best ({at} at once)"
        yield Target(what, aim, _over(rate, theirs))
    rate, tasks = found.ours("sqlite", "fresh", "rate")
    measured = [(*found.peer(name, "sqlite"), name) for name in sorted(found.names("sqlite"))]
    best = max((one for one in measured if one[0] is not None), default=(None, 0, "no peer"))
    what = (
        f"SQLite at {tasks}, equal durability: events/s over the best peer ({best[2]}, {best[1]} at once)"
    )
    yield Target(what, 5, _over(rate, best[0]))


def _replays(found: _Found) -> Iterator[Target]:
    for store in ("sqlite", "postgres"):
        for stream, words in (("replay", "from memory"), ("reread", "read from the ledger")):
            rate, tasks = found.ours(store, stream, "rate")
            fresh, _ = found.ours(store, "fresh", "rate")
            what = f"{store} at {tasks}: replays {words}, events/s over fresh ones"
            yield Target(what, 5, _over(rate, fresh))


def _cost(document: dict[str, Any]) -> Iterator[Target]:
    for row in document.get("cost", [])[:1]:  # the gate alone; the other rows show what batching adds
        yield Target(
            f"processor time an event, {row['name']}, no store", 40, row["us"], at_least=False, unit="µs"
        )


_GATE_AIMS: Final = (  # a ratio of `bench gate`, its aim, and whether that is the least
    ("fresh at 256: events/s against the baseline", 5, True),
    ("fresh, uvloop at 256: events/s against the baseline", 5, True),
    ("fresh at 1: median latency against the baseline", 1.5, False),
    ("fresh, a thread at 1: median latency against the baseline", 1.5, False),
    ("replay from memory at 256: against fresh", 5, True),
)
P99_MS_MAX: Final = 2.0
BYTES_A_KEY_MAX: Final = 250.0


def _gate(document: dict[str, Any]) -> Iterator[Target]:
    """What the gate was to reach beside the plain baseline; nothing where it was not measured."""
    found = document.get("gate")
    if found is None:
        return
    for name, aim, at_least in _GATE_AIMS:
        if name in found["ratios"]:
            yield Target(f"SQLite, {name}", aim, found["ratios"][name], at_least=at_least)
    for one in found["results"]:
        if (one["name"], one["concurrency"]) == ("fresh", 1):
            yield Target("SQLite, fresh at 1: p99", P99_MS_MAX, one["p99_ms"], at_least=False, unit="ms")
    if found["size"]:
        what, size = "SQLite: on disk for a settled key", found["size"]["bytes_per_key"]
        yield Target(what, BYTES_A_KEY_MAX, size, at_least=False, unit="bytes")


_MODE_AIMS: Final = (  # how a ratio of `bench postgres` begins, its aim, and whether that is the least
    ("writes as data at 256", 3, True),
    ("writes as data at 1:", 1.4, False),
    ("commit block", 0.6, True),
    ("tx= asyncpg at", 0.6, True),
    ("tx= asyncpg, on uvloop", 0.6, True),
    ("same database", 0.5, True),
    ("4 processes together, against one with as many", 1, True),
)


def _modes(document: dict[str, Any]) -> Iterator[Target]:
    """What each way to commit on PostgreSQL was to reach; nothing where it was not measured."""
    ratios = document.get("modes", {}).get("ratios", {})
    for start, aim, at_least in _MODE_AIMS:
        for name, value in ratios.items():
            if name.startswith(start):
                yield Target(f"PostgreSQL, {name}", aim, value, at_least=at_least)


_HTTP_AIMS: Final = (("sqlite, fresh", 0.3), ("sqlite, replay", 0.6), ("postgres, fresh", 0.3))


def _http(document: dict[str, Any]) -> Iterator[Target]:
    """What the service was to reach over 64 connections; nothing where it was not measured."""
    found = document.get("http")
    if found is None:
        return
    ratios = found["ratios"]
    for name, aim in _HTTP_AIMS:
        yield Target(f"service, {name} keys: requests/s over the bare server's", aim, _ratio(ratios, name))
    for one in found["results"]:
        if one["keys"] == "fresh" and one["name"] in ("sqlite", "postgres"):
            what = f"service, {one['name']}, fresh keys: p99"
            yield Target(what, 25, one["p99_ms"], at_least=False, unit="ms")
    for name, value in ratios.items():
        if not name.endswith("/ bare"):
            yield Target(f"service, several processes: {name}, requests/s", 1, value)


def _ratio(ratios: dict[str, float], name: str) -> float | None:
    return ratios.get(f"{name} / bare")


def _sender(document: dict[str, Any]) -> Iterator[Target]:
    """What the sender was to reach; nothing where it was not measured."""
    found = document.get("sender")
    if found is None:
        return
    for name, value in found["ratios"].items():
        yield Target(f"sender: {name}", 5 if "procrastinate" in name else 0.3, value)
    for store in [name for name in found["turns"][0] if name != "bare"]:
        rates = [turn[store] for turn in found["turns"]]
        yield Target(
            f"sender, {store}: ordered deliveries, 1,000 keys", 3_000, median(rates), unit="a second"
        )
    for one in found.get("successors", []):
        what = f"sender, {one['store']}: from an acknowledgement to its successor, 1,000 keys, median"
        yield Target(what, 5, one["paced_ms"], at_least=False, unit="ms")


def _sources(document: dict[str, Any]) -> Iterator[Target]:
    """What each queue was to reach; nothing where it was not measured."""
    for one in document.get("sources", {}).get("ratios", ()):
        what = f"source {one['kind']}, {one['store']}"
        if (aim := AIMS.get(one["kind"])) is not None:
            yield Target(f"{what} / the gate without a queue", aim, one["of_gate"])
        if one["kind"] != "sqs":  # the model is slower than what is measured
            added = f"{what}: one message, added to the bare client"
            yield Target(added, ADDED_MS_AIM, one["added_ms"], at_least=False, unit="ms")


def _history(document: dict[str, Any]) -> Iterator[Target]:
    """Journal, snapshots and plans; nothing where they were not measured."""
    if (found := document.get("journal")) is not None:
        beside, proof = found["gate with a sealer beside it"], found["proof"]
        yield Target("journal: records sealed", 50_000, found["seal"]["a second"], unit="a second")
        yield Target("journal: events/s with a sealer beside the gate", 0.97, beside["median"])
        yield _at_most(
            "journal: one million records verified", 10, found["verify"]["microseconds each"], "s"
        )
        yield _at_most("journal: a proof", 2_048, proof["bytes"], "bytes")
        yield _at_most("journal: a proof", 1, proof["microseconds each"] / 1_000, "ms")
    if (made := document.get("history")) is not None:
        size = f"{made['objects']:,} objects"
        yield _at_most(f"snapshot of {size}", 5, made["first snapshot"]["seconds"], "s")
        yield _at_most(f"plan for {size}, {made['mutations']:,} changes", 30, made["plan"]["seconds"], "s")


def _at_most(what: str, aim: float, measured: float, unit: str) -> Target:
    return Target(what, aim, measured, at_least=False, unit=unit)


def _cells(document: dict[str, Any]) -> Iterator[Target]:
    rows = document.get("faults", [])
    right = {(row["name"], row["store"]): _all_right(row) for row in rows}
    ours = [found for (name, _), found in right.items() if name == OURS]
    others = [found for (name, _), found in right.items() if name != OURS]
    share = sum(ours) / len(ours) if ours else None
    yield Target("faults: our stores with every cell right", 1, share, unit="share")
    yield Target(
        "faults: peers with every cell right",
        0,
        float(sum(others)) if others else None,
        at_least=False,
        unit="peers",
    )


def _all_right(row: dict[str, Any]) -> bool:
    return all(cell["judgement"] == "right" for cell in row["cells"].values())
