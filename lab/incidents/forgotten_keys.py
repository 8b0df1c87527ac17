"""Keys that are forgotten before the sender forgets the event: windows of five minutes and of a day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place, known, once_each, tally_done
from oncegate import Gate, Verdict
from oncegate.maintenance.pruner import Pruner
from oncegate.recorder.planning import make_plan
from oncegate.recorder.reading import began_ms
from oncegate.testing import ManualClock

SURFACE: Final = "credits"
TABLE: Final = "CREATE TABLE credit (id TEXT NOT NULL)"  # not unique: a double would show
INSERT: Final = "INSERT INTO credit (id) VALUES (?)"
DAY_MS: Final = 24 * 3600 * 1000


class ForgottenKeys(Incident):
    """A webhook comes again after the store that should know it has forgotten it.

    Ids of webhooks were kept for five minutes in one service, for a day in another: long enough for every
    retry that was ever seen. Then a dead letter was redriven on Thursday, a provider retried after
    eleven days, an auditor replayed January in March, and a sender restored a backup. Each of them granted
    a credit twice. The gate keeps keys for ninety days, prunes older ones every night, and what is older
    than its memory waits for a person instead of passing for new.
    """

    name = "forgotten-keys"

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """Two memories with a time limit."""
        return {
            "ids kept for 5 minutes": lambda place: self._with_memory_of(5 * 60 * 1000),
            "ids kept for 24 hours": lambda place: self._with_memory_of(DAY_MS),
        }

    def _with_memory_of(self, milliseconds: int) -> Numbers:
        seen: dict[str, int] = {}
        granted = []
        for one in make_plan(self.recording):
            credit = one.payload["credit"]
            if credit in seen and one.at_ms - seen[credit] <= milliseconds:
                continue
            seen[credit] = one.at_ms
            granted.append(credit)
        return self._counted(granted)

    def gated(self, place: Place) -> Numbers:
        """The credit is written with the outcome; the pruner works every night."""
        clock = ManualClock(wall_ms=began_ms(self.recording))
        verdicts = []
        # No memory beside the ledger: in a hundred days many processes come and go.
        with Gate(f"sqlite:///{place.folder}/ledger.db", clock=clock, replay_cache_max=0) as gate:

            @gate.handler(SURFACE, key="{credit}", occurred_at="booked_at", retention="90d", lease="10m")
            def grant(event: Any, once: Any) -> Any:
                with once.commit(resource=event["credit"]) as tx:
                    tx.execute(INSERT, (event["credit"],))

            session = gate.engine.store.connect()
            with session.unit():
                session.execute(TABLE, ())
            forgotten = 0
            for one in make_plan(self.recording):
                forgotten += _nights_until(began_ms(self.recording) + one.at_ms, clock, Pruner(gate))
                verdicts.append(gate.admit_sync(SURFACE, one.payload).verdict)
            with session.unit():
                granted = [str(row[0]) for row in session.execute("SELECT id FROM credit", ())]
            session.close()
        return self._counted(granted, forgotten, verdicts.count(Verdict.QUARANTINE))

    def _counted(
        self, granted: list[str], forgotten: int | None = None, waiting: int | None = None
    ) -> Numbers:
        wanted = {one.payload["credit"] for one in make_plan(self.recording)}
        return known(
            {
                "arrivals": len(self.recording.arrivals),
                "credits": len(wanted),
                "credits granted": len(granted),
                **tally_done(granted, wanted),
                "keys pruned in 100 days": forgotten,
                "older than the memory: left to a person": waiting,
            }
        )

    def wrong(self, numbers: Numbers) -> list[str]:
        """One grant a credit."""
        return once_each(numbers, "credits granted", numbers["credits"])


def _nights_until(wall_ms: int, clock: ManualClock, pruner: Pruner) -> int:
    """Lets the days pass, each with its pruning; returns how many keys were forgotten."""
    forgotten = 0
    while clock.wall_ms() < wall_ms:
        clock.advance(min(DAY_MS, wall_ms - clock.wall_ms()) / 1000 + 0.0005)
        forgotten += pruner.run_once().entries
    return forgotten
