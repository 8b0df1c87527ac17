"""A network that fails between worker and store: in the middle of a commit, and then altogether."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place, once_each, tally_done
from lab.incidents.outside import Outside
from oncegate import Gate
from oncegate.errors import StoreError
from oncegate.recorder.planning import make_plan
from oncegate.testing.proxy import Proxy

SURFACE: Final = "transfers"
LOSES_A_REPLY: Final = "t-3"
CUT_OFF: Final = ("t-5", "t-6")
_KEYS: Final = b"CREATE TABLE seen (id TEXT PRIMARY KEY)"
_TAKE: Final = b"INSERT INTO seen VALUES (%s)"

Deliver = Callable[[dict[str, Any]], None]


class Partition(Incident):
    """The network between worker and store fails, and an error is taken for a no.

    The store commits the key of a transfer and its reply is lost; a little later it cannot be reached at
    all. A worker that takes the error for "not reserved" leaves the transfer to the next delivery, which
    finds the key and acknowledges it: the money is never sent. A worker that goes on without its store, so
    as not to stop the business, sends money whose key is not recorded, and once more when it comes again.
    The gate knows three answers, done, not done and unknown; it asks again what an unknown commit did, and
    without its store it does nothing. A real PostgreSQL server, behind a proxy that drops messages.
    """

    name = "partition"
    needs_postgres = True

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """The two ways to misread an error."""
        return {
            "an error means no": lambda place: self._guessing(place, goes_on=False),
            "fail open": lambda place: self._guessing(place, goes_on=True),
        }

    def _guessing(self, place: Place, *, goes_on: bool) -> Numbers:
        import psycopg

        outside = Outside(place.folder)
        with self._network(place) as (direct, proxy):
            with psycopg.connect(direct, autocommit=True) as connection:
                connection.execute(_KEYS)

            def deliver(event: dict[str, Any]) -> None:
                try:
                    with psycopg.connect(proxy.url(direct)) as connection:
                        connection.execute(_TAKE, (event["transfer"],))
                except psycopg.errors.UniqueViolation:
                    return
                except psycopg.OperationalError:
                    if not goes_on:
                        return
                outside.act(event["transfer"])

            self._played(proxy, deliver, b"COMMIT\0")
            return self._counted(outside.done(), proxy)

    def gated(self, place: Place) -> Numbers:
        """The production gate on the same server behind the same proxy."""
        outside = Outside(place.folder)
        with self._network(place) as (direct, proxy), Gate(proxy.url(direct)) as gate:
            bank = gate.downstream("bank", honours_key="7d")

            @gate.handler(SURFACE, key="{transfer}", lease="10m")
            def send(event: Any, once: Any) -> Any:
                return once.effect(bank, outside.act, event["transfer"])

            def deliver(event: dict[str, Any]) -> None:
                with contextlib.suppress(StoreError):  # not acknowledged: it comes again
                    gate.admit_sync(SURFACE, event)

            self._played(
                proxy, deliver, b"SELECT 1\0"
            )  # what the server says to the statement that reserves
            return self._counted(outside.done(), proxy)

    @contextlib.contextmanager
    def _network(self, place: Place) -> Iterator[tuple[str, Proxy]]:
        assert place.new_server is not None
        with place.new_server() as server, Proxy(server.folder) as proxy:
            yield server.new_database(), proxy

    def _played(self, proxy: Proxy, deliver: Deliver, reply: bytes) -> None:
        met: set[str] = set()
        for one in make_plan(self.recording):
            transfer = one.payload["transfer"]
            if transfer == LOSES_A_REPLY and transfer not in met:
                proxy.lose_reply(reply)
            if transfer in CUT_OFF and transfer not in met:
                proxy.refuse()
            met.add(transfer)
            deliver(one.payload)
            proxy.allow()

    def _counted(self, done: list[str], proxy: Proxy) -> Numbers:
        wanted = {one.payload["transfer"] for one in make_plan(self.recording)}
        return {
            "arrivals": len(self.recording.arrivals),
            "replies of the store that were lost": proxy.happened["lost reply"],
            "connections that were refused": int(proxy.happened["refused"] > 0),
            "transfers": len(wanted),
            "money sent": len(done),
            **tally_done(done, wanted),
        }

    def wrong(self, numbers: Numbers) -> list[str]:
        """The money of each transfer once; and the network must have failed."""
        found = once_each(numbers, "money sent", numbers["transfers"])
        if numbers["replies of the store that were lost"] != 1:
            found.append("no reply was lost")
        if not numbers["connections that were refused"]:
            found.append("no connection was refused")
        return found
