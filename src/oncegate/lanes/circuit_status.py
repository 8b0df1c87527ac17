"""How circuits stand, for all processes: an engine posts changes as notices, lists and pages read them.

A circuit belongs to one engine. What is read here is what the engines said last, with how long ago that
was; nothing is decided by it. An engine that died is not quoted for longer than `SILENCE_MS`.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.notice_operations import PostNotice
from oncegate.errors import StoreError
from oncegate.model.circuit import Circuit, CircuitState
from oncegate.store import Notice, Notices, Posting

KIND: Final = "circuit"
DOWNSTREAM: Final = "downstream "  # begins the name of a circuit that belongs to a downstream
TELL_SECONDS: Final = 1.0  # so soon is a change told
AGAIN_MS: Final = 15_000  # while a circuit is not closed, so often
SILENCE_MS: Final = 60_000
SEEN_CHARS_MAX: Final = 60
_SEEN: Final = re.compile(r": | \(")
CLOSED_KEPT_MS: Final = 24 * 3_600_000

log = logging.getLogger("oncegate.lanes")


class CircuitWord(Struct, frozen=True):
    """What an engine says: since when, how often it opened since (0: closed), how long it rests now."""

    since_ms: int
    openings: int = 0
    rest_ms: int = 0
    lanes: int = 0
    error: str = ""


class CircuitView(Struct, frozen=True):
    """A destination's circuit as people see it; where engines differ, the one that is worst off.

    `next_try_in_ms` is None where it is closed; 0 means with the next event that is due.
    """

    state: CircuitState
    since_ms: int
    next_try_in_ms: int | None
    openings: int
    lanes: int
    error: str
    told_by: str
    told_ago_ms: int


class CircuitBoard:
    """Tells how one engine's circuits stand, when that changes."""

    def __init__(self, commits: GroupCommit, clock: Clock, holder: int) -> None:
        self._commits = commits
        self._clock = clock
        self._writer = f"{socket.gethostname()[:80]}, process {os.getpid()}, engine {holder & 0xFFFF:04x}"
        self._told: dict[str, tuple[CircuitWord, int]] = {}

    def tell_now(self, circuits: Mapping[str, Circuit]) -> None:
        """The same as `tell`, from a thread; for circuits that are never removed."""
        for name, circuit in circuits.items():
            if not self._is_news(name, circuit):
                continue
            word, told_at = self._word(name, circuit), self._clock.ticks_ms()
            try:
                self._commits.submit(PostNotice(self._posting(name, word, _kept_ms(word))))
            except StoreError as error:
                log.info("telling the circuit of %s: %s: %s", name, type(error).__name__, error)
                return
            self._told[name] = (word, told_at)

    async def tell(self, circuits: Mapping[str, Circuit]) -> None:
        """Posts what has changed, and now and then what is not closed; a store that is away is no harm."""
        for name, circuit in circuits.items():
            if self._is_news(name, circuit) and not await self._post(name, self._word(name, circuit)):
                return
        for name in [name for name in self._told if name not in circuits]:
            await self._take_down(name)

    async def take_down(self) -> None:
        """Removes what is not closed, because no process will report about it again."""
        for name in list(self._told):
            if not await self._take_down(name):
                return

    def _is_news(self, name: str, circuit: Circuit) -> bool:
        if name not in self._told:
            return circuit.openings > 0
        word, told_at = self._told[name]
        is_due = self._clock.ticks_ms() - told_at >= AGAIN_MS
        return circuit.openings != word.openings or (circuit.openings > 0 and is_due)

    def _word(self, name: str, circuit: Circuit) -> CircuitWord:
        before = self._told.get(name)
        was_open, is_open = before is not None and before[0].openings > 0, circuit.openings > 0
        since = before[0].since_ms if before is not None and was_open == is_open else self._clock.wall_ms()
        rest = circuit.opens_in_ms(self._clock.ticks_ms()) or 0
        return CircuitWord(since, circuit.openings, rest, circuit.failing, circuit.error)

    async def _post(self, name: str, word: CircuitWord) -> bool:
        told_at = self._clock.ticks_ms()
        is_told = await self._try(name, word, _kept_ms(word))
        if is_told:
            self._told[name] = (word, told_at)
        return is_told

    async def _take_down(self, name: str) -> bool:
        word, _ = self._told.pop(name)
        return not word.openings or await self._try(name, word, 0)

    async def _try(self, name: str, word: CircuitWord, keep_ms: int) -> bool:
        try:
            return await self._commits.submit_async(PostNotice(self._posting(name, word, keep_ms)))
        except StoreError as error:
            log.info("telling the circuit of %s: %s: %s", name, type(error).__name__, error)
            return False

    def _posting(self, name: str, word: CircuitWord, keep_ms: int) -> Posting:
        body = msgspec.json.encode(word)
        return Posting(KIND, name, self._writer, body, self._clock.wall_ms(), keep_ms)


def _kept_ms(word: CircuitWord) -> int:
    return SILENCE_MS if word.openings else CLOSED_KEPT_MS


def downstream_circuit(name: str) -> str:
    """What the circuit of a downstream is called among those of endpoints."""
    return f"{DOWNSTREAM}{name}"


def observed(view: CircuitView) -> str:
    """What was seen of a destination, in a few words and without what it wrote: `HTTP 503`."""
    return _SEEN.split(view.error, maxsplit=1)[0][:SEEN_CHARS_MAX] or "not told why"


def read_circuits(session: Notices) -> dict[str, CircuitView]:
    """The circuits with a report; a destination that is missing is closed."""
    by_name: dict[str, list[CircuitView]] = {}
    for notice in session.notices(KIND):
        by_name.setdefault(notice.name, []).append(_view(notice))
    return {name: _worst(views) for name, views in by_name.items()}


def _view(notice: Notice) -> CircuitView:
    word = msgspec.json.decode(notice.body, type=CircuitWord)
    left = max(0, word.rest_ms - notice.age_ms)
    state = CircuitState.OPEN if left else CircuitState.HALF_OPEN
    if not word.openings:
        state = CircuitState.CLOSED
    next_try = None if state is CircuitState.CLOSED else left
    told = (notice.writer, notice.age_ms)
    return CircuitView(state, word.since_ms, next_try, word.openings, word.lanes, word.error, *told)


def _worst(views: Iterable[CircuitView]) -> CircuitView:
    """Open before half open before closed; of equals the latest change."""
    badness = {CircuitState.OPEN: 2, CircuitState.HALF_OPEN: 1, CircuitState.CLOSED: 0}
    return max(views, key=lambda view: (badness[view.state], view.since_ms))
