"""The sealed journal at size: sealing, verifying, proofs, and the gate with a sealer at work (E11)."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

from oncegate.bench.workload import event_blocks, open_gate, prepare_business_table, run_gate
from oncegate.clock import SystemClock
from oncegate.journal.keys import PrivateKey
from oncegate.journal.proofs import prove_entry
from oncegate.journal.sealer import Sealer
from oncegate.journal.verifying import Verification
from oncegate.store import Reservation, Store
from oncegate.testing import Forked
from oncegate.wiring import open_store

RECORDS: Final = 1_000_000
PROOFS: Final = 200
TURNS: Final = 5
TASKS: Final = 256
EVENTS: Final = 15_000  # a turn: one batch and a half of the sealer
_STEP: Final = 1_000
_LOOK_SECONDS: Final = 0.1  # a worker looks once a minute; here the sealer is at it all the time
_OUTCOME: Final = b'{"value":{"order":1}}'


def measure_journal(records: int = RECORDS, events: int = EVENTS, turns: int = TURNS) -> dict[str, Any]:
    """Seals, verifies and proves so many records on the embedded ledger."""
    with tempfile.TemporaryDirectory(prefix="oncegate-bench-") as name:
        key, store = PrivateKey.generate("bench"), open_store(f"sqlite:///{name}/ledger.db")
        _fill(store, records)
        sealed = _timed(lambda: Sealer(store, SystemClock(), [key]).run_once(at_once=True), records)
        verified = _timed(lambda: _verify(store, key, records), records)
        sizes: list[int] = []
        proved = _timed(lambda: sizes.extend(_prove(store, records)), PROOFS)
        store.close()
        beside = [_share(Path(name), number, key, events) for number in range(turns)]
    return {
        "records": records,
        "seal": sealed,
        "verify": verified,
        "proof": {**proved, "bytes": max(sizes)},
        "gate with a sealer beside it": {"median": round(median(beside), 3), "turns": beside},
    }


def _timed(work: Callable[[], Any], count: int) -> dict[str, float]:
    wall, processor = perf_counter(), process_time()
    work()
    wall, processor = perf_counter() - wall, process_time() - processor
    return {
        "microseconds each": round(wall / count * 1e6, 2),
        "processor microseconds each": round(processor / count * 1e6, 2),
        "a second": round(count / wall),
    }


def _fill(store: Store, records: int) -> None:
    session = store.connect()
    for start in range(0, records, _STEP):
        wanted = [_reservation(number) for number in range(start, min(records, start + _STEP))]
        with session.unit():
            session.record(wanted, _OUTCOME)
    session.close()


def _reservation(number: int) -> Reservation:
    body = b'{"amount":120,"customer":"c-%d","id":"o-%d"}' % (number % 1_000, number)
    key, at_ms = b"%024d" % number, 1_780_000_000_000 + number
    return Reservation(
        key, "", "orders", f"o-{number}", b"f" * 16, body, at_ms, 20_000, 8, number + 1, ends_here=True
    )


def _verify(store: Store, key: PrivateKey, records: int) -> None:
    with store.look() as session:
        report = Verification(session, trusted=[key.verifier]).run()
    assert (report.findings, report.size, report.bodies) == ([], records, records)


def _prove(store: Store, records: int) -> list[int]:
    with store.look() as session:
        places = (number * 7_919 % records + 1 for number in range(PROOFS))
        return [len(json.dumps(prove_entry(session, place)[0])) for place in places]


def _share(folder: Path, number: int, key: PrivateKey, events: int) -> float:
    """Events a second with a sealer in another process, over those without; the two take turns at first."""
    order = (False, True) if number % 2 else (True, False)
    rates = {
        with_sealer: _rate(folder, f"{number}-{with_sealer}", key, events, with_sealer)
        for with_sealer in order
    }
    return round(rates[True] / rates[False], 3)


def _rate(folder: Path, name: str, key: PrivateKey, events: int, with_sealer: bool) -> float:
    url = f"sqlite:///{folder}/{name}.db"
    gate = open_gate(url)
    prepare_business_table(gate)

    def seal() -> None:
        store = open_store(url)
        sealer = Sealer(store, SystemClock(), [key], batch_records=events // 3)
        sealer.run_once(at_once=True)
        # What is left at the end is less than a batch: it would wait for the interval.
        while sealer.run_once().size <= events - events // 3:
            SystemClock().pause(_LOOK_SECONDS)
        store.close()

    async def admit() -> float:
        return (await run_gate(gate, event_blocks(events)(), TASKS)).rate

    if not with_sealer:
        rate = asyncio.run(admit())
    else:
        with Forked(seal) as beside:
            rate = asyncio.run(admit())
            assert beside.wait(600) == 0
    gate.close()
    return rate
