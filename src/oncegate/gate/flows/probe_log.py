"""What a downstream answered when it was asked about a key, put on record for people (E5).

Called by the effect flow, only after an earlier attempt: a first call has no probe. Where the settlement's
own reason tells the answer, nothing is written here. Must never change what is decided: a ledger that
cannot take the record goes without it. Only a lost fence is raised, as with every write of a claim.
"""

from __future__ import annotations

from typing import Any, Final

from oncegate.commit.operations import RecordProgress
from oncegate.errors import ClaimLost, StoreError
from oncegate.gate.driver.requests import Flow
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext, author_of
from oncegate.store import StepRecords

ANSWER_LENGTH_MAX: Final = 300
NOTHING_FOUND: Final = "nothing found; it is called now"


def holds(resource: str | None) -> str:
    """What is said of a key that owns something, by the id of that where it shows one."""
    return "the key owns something there" if resource is None else f"holds {resource}"


def no_answer(error: Exception) -> str:
    """What is said of a probe that failed."""
    return f"no answer, {type(error).__name__}: {error}"


def record_answer(gate: GateContext, claim: Claim, where: tuple[str, str], answer: str) -> Flow[None]:
    """Writes down what a downstream said of a step; `where` names the downstream and the step."""
    downstream, step_name = where
    note = _plain(f"asked {downstream} about {step_name}: {answer}")[:ANSWER_LENGTH_MAX]
    actor = author_of(gate, claim.surface.rule, claim.arrival)
    wanted = StepRecords(*claim.id, (), gate.clock.wall_ms(), probed=note, actor=actor)
    try:
        saved: Any = yield RecordProgress(wanted)
    except StoreError:
        return
    if not saved:
        claim.lost = True
        raise ClaimLost(f"{claim.key.text}: another worker holds the key now")


def _plain(text: str) -> str:
    """One line that any store can keep: no halves of surrogate pairs, no NUL."""
    return " ".join(text.encode("utf-8", "replace").decode().replace("\0", " ").split())
