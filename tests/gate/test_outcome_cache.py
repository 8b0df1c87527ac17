"""The memory of final outcomes: bounded, the oldest forgotten first, each kept once."""

from __future__ import annotations

from oncegate.gate.runtime.cache import CachedOutcome, OutcomeCache
from oncegate.model.states import State


def outcome(number: int, state: State = State.COMMITTED) -> CachedOutcome:
    return CachedOutcome(number, state, b"content", b"{}", None)


def test_the_oldest_is_forgotten_first() -> None:
    """Given room for two, when a third comes, then the first one is gone."""
    cache = OutcomeCache(2)

    for number in range(3):
        cache.put(b"%d" % number, outcome(number))

    assert [cache.get(b"%d" % number) for number in range(3)] == [None, outcome(1), outcome(2)]
    assert len(cache) == 2


def test_an_outcome_that_is_put_again_takes_no_second_place() -> None:
    """Given two outcomes, when one is put again, then none is forgotten; the newest counts."""
    cache = OutcomeCache(2)
    cache.put(b"a", outcome(1))
    cache.put(b"b", outcome(2))

    for number in range(10):
        cache.put(b"b", outcome(number))

    assert (cache.get(b"a"), cache.get(b"b")) == (outcome(1), outcome(9))
    cache.put(b"c", outcome(3))
    assert (cache.get(b"a"), cache.get(b"b"), cache.get(b"c")) == (None, outcome(9), outcome(3))


def test_what_may_still_change_is_not_kept() -> None:
    """Only final outcomes are; and none at all where there is no room."""
    cache, none = OutcomeCache(2), OutcomeCache(0)

    cache.put(b"a", outcome(1, State.IN_FLIGHT))
    none.put(b"a", outcome(1))

    assert (len(cache), len(none)) == (0, 0)
