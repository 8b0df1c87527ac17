"""A claim from its reservation to its outcome, and all of it undone: whether a ledger can be written.

Called by the stores' own examinations, for `oncegate doctor`. Must never leave anything behind, and never
wait for a writer: a process that works is not held up by one that looks.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from oncegate.model.states import State
from oncegate.store import (
    Finding,
    Renewal,
    Reservation,
    Session,
    Settlement,
    StepRecord,
    StepRecords,
    StepState,
)

WHAT: Final = "writing"
BUSY: Final = Finding(True, WHAT, "another process is writing right now")
POSSIBLE: Final = Finding(True, WHAT, "possible: a claim was reserved, settled and undone")
_NAME: Final = "oncegate doctor"  # no event has it: nobody waits for a name that is written and undone
_LEASE_MS: Final = 30_000


class _Undo(Exception):
    """Raised inside a unit to leave nothing of it behind."""


def rehearse(session: Session, now_ms: int, begun: Callable[[], object] = lambda: None) -> None:
    """Takes a random key through everything that an event may need; raises what the ledger refuses.

    `begun` is called first inside the transaction.
    """
    with suppress(_Undo), session.unit(wait=False):
        begun()
        (reserved,) = session.reserve([_reservation(now_ms)])
        claim = reserved.claim
        session.renew([Renewal(*claim, _LEASE_MS)])
        step = StepRecord("rehearsal", StepState.STARTED, _NAME, started_at_ms=now_ms)
        session.progress([StepRecords(*claim, (step,), now_ms)])
        ended = Settlement(*claim, State.COMMITTED, now_ms, _NAME, outcome=b"null", clear_steps=True)
        session.settle([ended])
        raise _Undo


def _reservation(now_ms: int) -> Reservation:
    return Reservation(
        key=secrets.token_bytes(24),
        tenant=_NAME,
        surface=_NAME,
        label=_NAME,
        fingerprint=secrets.token_bytes(16),
        body=b"{}",
        received_at_ms=now_ms,
        lease_ms=_LEASE_MS,
        attempts_max=1,
        token=secrets.randbits(62),
        actor=_NAME,
    )
