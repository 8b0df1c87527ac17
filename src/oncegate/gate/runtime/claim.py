"""A live claim: what one worker knows while it holds a key.

Made by the admitting flow, shared by the faces that handlers use and by the lease keeper. Must never be
reused for another attempt: every attempt has its own fence.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import ClaimLost, OncegateError, RecordedFailure, UsageError
from oncegate.gate.declared import Declared
from oncegate.gate.driver.awaiting import Given
from oncegate.gate.driver.requests import ThreadCall
from oncegate.gate.surface import Surface
from oncegate.model.declarations import pattern_of
from oncegate.model.downstream import Doubt
from oncegate.model.keys import Key
from oncegate.model.sql_guard import check_statement
from oncegate.model.states import Decision
from oncegate.model.surface import Arrival
from oncegate.model.trace import Context
from oncegate.store import ClaimId, Joined, Reserved, Statement, StepRecord, StepState

_RUN: Final = Decision.RUN


class Claim(Struct, eq=False):
    """One attempt at one key; `claim_of` makes it."""

    surface: Surface
    arrival: Arrival
    key: Key
    reserved: Reserved
    fingerprint: bytes
    entry_id: int
    fence: int
    is_new: bool = False  # its event has come for the first time, and brought its context itself
    is_first_attempt: bool = False  # no earlier attempt can have done anything
    declared: Declared | None = None  # what its reservation carried
    past: Any = None  # what is known of earlier attempts, once somebody asks (`gate.recovery`)
    steps: dict[str, StepRecord] = {}
    used_names: set[str] = set()
    unsaved: dict[str, StepRecord] = {}
    writes: list[Statement] = []
    given: Given = []
    resource: str | None = None
    outcome: bytes | None = None
    in_doubt: str | None = None
    valid_until_ms: int = 0
    watched_since_ms: int = 0
    renewed_at_ms: int = 0
    in_block: bool = False
    ended: bool = False
    called: bool = False
    untold_at_ms: int | None = None  # when a call was made that no step tells of, by the wall clock
    has_saved_steps: bool = False
    committed: bool = False
    join: Joined | None = None
    joined: bool = False
    stands_alone: bool = False  # the user's transaction was committed, and our settlement undone in it
    lost: bool = False
    recorded: bool = False  # what became of it is in the ledger, or nothing did
    context: Context | None = None
    loop: AbstractEventLoop | None = None
    label: str = ""
    left: ThreadCall | None = None  # the handler's thread, which goes on without its task

    @property
    def id(self) -> ClaimId:
        """What every request that acts for it carries."""
        return self.reserved.claim

    @property
    def is_deserted(self) -> bool:
        """Whether its task belongs to an event loop that is closed: it can never finish."""
        return self.loop is not None and self.loop.is_closed()

    @property
    def first_declared(self) -> str | None:
        """What the first attempt declared."""
        if not self.is_first_attempt:
            return self.reserved.declared
        return None if self.declared is None else self.declared.text

    def check_usable(self) -> None:
        """Raises unless this claim may still act."""
        if self.in_block:
            raise UsageError("effects and steps go before the commit block, not inside it")
        if self.ended:
            raise UsageError("the handler has ended; what it started may not use its claim any more")
        if self.lost:
            raise ClaimLost(f"{self.key.text}: the lease expired and another worker holds the key")
        if self.committed or self.joined:
            raise UsageError("the outcome is already committed: put effects and steps before once.commit")

    def is_anothers(self, error: BaseException) -> bool:
        """Whether an error that a call of this claim raised has ended another event, and speaks of that."""
        if isinstance(error, RecordedFailure):
            return True
        return isinstance(error, OncegateError) and error.passed_into is self

    def begin_step(self, name: str) -> StepRecord | None:
        """Takes a step's name for this attempt and returns what is recorded of it."""
        self.check_usable()
        if name in self.used_names:
            raise UsageError(
                f"step {name!r} is used twice in one handler; give each call a name of its own"
            )
        self.used_names.add(name)
        found = self.steps.get(name)
        if found is None and not self.is_first_attempt and self.steps:
            return self.steps.get(pattern_of(name))  # what is known of all that differ in a number
        return found

    def note(self, step: StepRecord) -> None:
        """Keeps a step to be recorded with the next write."""
        self.steps[step.name] = step
        self.unsaved[step.name] = step

    def noted(self) -> tuple[StepRecord, ...]:
        """The steps that the ledger is not known to have yet."""
        return tuple(self.unsaved.values())

    def forget_saved(self, saved: Sequence[StepRecord]) -> None:
        """Leaves out of the next write what the ledger has now, and nothing that was noted since."""
        for step in saved:
            if self.unsaved.get(step.name) is step:
                self.unsaved.pop(step.name, None)

    def doubt(
        self, may_have_begun: bool, last_call_ticks: int, now_wall_ms: int, recorded: StepRecord | None
    ) -> Doubt:
        """How long ago earlier attempts may have called a step's downstream."""
        reserved = self.reserved
        by_ticks = reserved.now_ticks - reserved.first_reserved_ticks
        by_wall = now_wall_ms - reserved.received_at_ms
        if recorded is not None and recorded.first_call_ticks is not None:
            certain = recorded.first_call_ticks - reserved.first_reserved_ticks
            by_ticks, by_wall = by_ticks - certain, by_wall - certain
        return Doubt(
            first_call_age=timedelta(milliseconds=max(by_ticks, by_wall)),
            last_call_age=timedelta(milliseconds=reserved.now_ticks - last_call_ticks),
            may_have_begun=may_have_begun,
        )


def claim_of(
    surface: Surface, arrival: Arrival, reserved: Reserved, declared: Declared | None = None
) -> Claim:
    """Makes the claim that a reservation came to, with what earlier attempts recorded.

    Its key is the one that was judged: downstreams know the event by that.
    """
    key = arrival.key if reserved.judged is None else Key(reserved.judged)
    is_new = reserved.decision is _RUN
    claim = Claim(
        surface, arrival, key, reserved, arrival.fingerprint, reserved.entry_id, reserved.fence,
        is_new, is_new or reserved.never_run, declared,
    )  # fmt: skip
    if reserved.steps:
        claim.steps = {step.name: step for step in reserved.steps}
        claim.has_saved_steps = True
        if reserved.decision is Decision.RECOVER:
            _doubt_denials(claim)
    return claim


def _doubt_denials(claim: Claim) -> None:
    """An interrupted attempt may have called what the one before it certainly had not."""
    for step in tuple(claim.steps.values()):
        if step.state is StepState.NOT_APPLIED and step.first_call_ticks is not None:
            claim.note(replace(step, state=StepState.CALLED))


def checked(writes: Iterable[Statement]) -> list[Statement]:
    """Business writes as they are kept; raises UsageError for one that would begin or end a transaction."""
    kept: list[Statement] = []
    try:
        for sql, parameters in writes:
            check_statement(sql)
            kept.append((sql, parameters if type(parameters) is tuple else _copied(parameters)))
    except (TypeError, ValueError):
        raise UsageError(
            "writes= is a list of statements, each with its parameters: "
            "[('INSERT INTO booking (id) VALUES (?)', ('N-1',))]"
        ) from None
    return kept


def _copied(parameters: Any) -> Any:
    """By place or by name; text would be taken apart into its letters."""
    if isinstance(parameters, (str, bytes)):
        raise TypeError
    return dict(parameters) if isinstance(parameters, Mapping) else tuple(parameters)
