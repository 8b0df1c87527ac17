"""A cache as the memory of keys: it forgets when it is full, and when it fails over."""

from __future__ import annotations

import os
import signal
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place, known, once_each, tally_done
from lab.incidents.outside import Outside
from oncegate import Gate
from oncegate.errors import ConfigError, DurabilityRefused, UsageError
from oncegate.recorder.planning import Planned, make_plan
from oncegate.testing.forking import run_forked

SURFACE: Final = "vouchers"
CACHE_KEYS_MAX: Final = 30
FAIL_OVER_MS: Final = 80_000
REPLICA_BEHIND_MS: Final = 5_000
WORKER_SECONDS: Final = 120.0


class LostKeys(Incident):
    """A cache keeps the keys until it needs the room, or until it fails over.

    Keys of vouchers lived in a cache that was quick and nearly always right. It throws out the oldest when
    its memory is full, and when its first node dies the second takes over with what it has, which is all
    but the last five seconds. After both, retries issue vouchers again. oncegate says no before it begins:
    a ledger that acknowledges what a crash can lose is refused by what it declares, on SQLite and on
    PostgreSQL alike. On one that keeps its word, the process that holds everything in memory is killed with
    SIGKILL at that very second, and nothing is forgotten.
    """

    name = "lost-keys"
    needs_postgres = True

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """An LRU cache with a replica that is behind."""
        return {"keys in a cache": lambda place: self._cached()}

    def _cached(self) -> Numbers:
        cache: OrderedDict[str, int] = OrderedDict()
        issued, has_failed = [], False
        for one in make_plan(self.recording):
            if one.at_ms >= FAIL_OVER_MS and not has_failed:
                has_failed = True
                kept = FAIL_OVER_MS - REPLICA_BEHIND_MS
                cache = OrderedDict((key, at_ms) for key, at_ms in cache.items() if at_ms <= kept)
            voucher = one.payload["voucher"]
            if voucher not in cache:
                issued.append(voucher)
            cache[voucher] = one.at_ms
            if len(cache) > CACHE_KEYS_MAX:
                cache.popitem(last=False)
        return self._counted(issued)

    def gated(self, place: Place) -> Numbers:
        """Stores that would lose keys are refused; on one that keeps them a kill loses nothing."""
        outside, plan = Outside(place.folder), make_plan(self.recording)
        before = [one for one in plan if one.at_ms < FAIL_OVER_MS]
        first, _ = run_forked(partial(_work, place.folder, before, dies=True), WORKER_SECONDS)
        second, _ = run_forked(
            partial(_work, place.folder, plan[len(before) :], dies=False), WORKER_SECONDS
        )
        if second:
            raise UsageError(f"the second process ended with {second}; see above")
        return self._counted(outside.done(), int(first == -signal.SIGKILL), _refusals(place))

    def _counted(self, issued: list[str], killed: int | None = None, refused: int | None = None) -> Numbers:
        wanted = {one.payload["voucher"] for one in make_plan(self.recording)}
        return known(
            {
                "arrivals": len(self.recording.arrivals),
                "vouchers": len(wanted),
                "vouchers issued": len(issued),
                **tally_done(issued, wanted),
                "processes killed at the fail-over": killed,
                "stores refused: they can lose keys": refused,
            }
        )

    def wrong(self, numbers: Numbers) -> list[str]:
        """One voucher each; the process was killed, and the stores that lose keys were refused."""
        found = once_each(numbers, "vouchers issued", numbers["vouchers"])
        if numbers.get("processes killed at the fail-over", 1) != 1:
            found.append("no process was killed at the fail-over")
        if numbers.get("stores refused: they can lose keys", 2) != 2:
            found.append("a store that can lose keys was not refused")
        return found


def _work(folder: Path, plan: Sequence[Planned], *, dies: bool) -> None:
    with Gate(f"sqlite:///{folder}/ledger.db") as gate:
        mint = gate.downstream("mint")  # asks no key: only the ledger stands against a repeat

        @gate.handler(SURFACE, key="{voucher}")
        def issue(event: Any, once: Any) -> Any:
            return once.effect(mint, lambda what: Outside(folder).act(what), event["voucher"], name="issue")

        for one in plan:
            gate.admit_sync(SURFACE, one.payload)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)


def _refusals(place: Place) -> int:
    """How many of two stores that acknowledge what a crash can lose are refused before anything runs."""
    assert place.new_server is not None
    refused = 0
    with place.new_server() as server:
        lossy = f"{server.new_database()}&options=-c%20synchronous_commit%3Doff"
        for address in (f"sqlite:///{place.folder}/quick.db?synchronous=OFF", lossy):
            try:
                with Gate(address) as gate:
                    gate.engine.store.connect().close()
            except (DurabilityRefused, ConfigError) as error:
                refused += "synchronous" in str(error)
    return refused
