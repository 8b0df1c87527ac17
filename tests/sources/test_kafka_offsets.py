"""Offsets of Kafka partitions: only the contiguous prefix, only of this epoch (traps 16, 19, 21)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncegate.sources.kafka_offsets import AssignedOffsets, Handle

PLACE = ("orders", 0)


def received(offsets: AssignedOffsets, numbers: list[int]) -> list[Handle]:
    found = [offsets.receive(PLACE, number) for number in numbers]
    assert None not in found
    return [one for one in found if one is not None]


def test_a_record_that_is_not_done_pins_the_prefix() -> None:
    """1, 2, 3, 5, 6 and 7 are done and 4 is not: committing 8 would lose 4."""
    offsets = AssignedOffsets()
    offsets.assign([PLACE])
    handles = received(offsets, [1, 2, 3, 4, 5, 6, 7])
    for handle in handles:
        if handle.offset != 4:
            offsets.finish(handle)
    assert offsets.to_commit() == {PLACE: 4}
    offsets.finish(handles[3])
    assert offsets.to_commit() == {PLACE: 8}
    assert offsets.to_commit() == {}


@given(st.lists(st.integers(0, 50), unique=True, min_size=1).map(sorted), st.data())
def test_no_offset_is_committed_past_one_that_is_open(numbers: list[int], data: st.DataObject) -> None:
    """Offsets may have gaps; whatever the order in which records end, nothing open is skipped."""
    offsets = AssignedOffsets()
    offsets.assign([PLACE])
    handles = received(offsets, numbers)
    left = set(numbers)
    for handle in data.draw(st.permutations(handles)):
        offsets.finish(handle)
        left.discard(handle.offset)
        offset = offsets.to_commit().get(PLACE)
        assert offset is None or offset <= min(left, default=offset)
    assert offsets.to_commit() == {}
    offsets.answered(PLACE, numbers[-1] + 1, is_taken=False)
    assert offsets.to_commit() == {PLACE: numbers[-1] + 1}


def test_the_last_commit_repeats_what_is_not_answered_yet() -> None:
    """A commit under way may still be refused when its partition leaves; one that was taken is enough."""
    offsets = AssignedOffsets()
    offsets.assign([PLACE])
    handle = offsets.receive(PLACE, 3)
    assert handle is not None
    offsets.finish(handle)
    assert offsets.to_commit() == {PLACE: 4}
    assert offsets.to_commit([PLACE], is_last=True) == {PLACE: 4}
    offsets.answered(PLACE, 4, is_taken=True)
    assert offsets.to_commit([PLACE], is_last=True) == {}


def test_what_belongs_to_an_earlier_epoch_changes_nothing() -> None:
    """The partition came back after others had it: an old acknowledgement must not rewind or advance it."""
    offsets = AssignedOffsets()
    offsets.assign([PLACE])
    (old,) = received(offsets, [7])
    offsets.forget([PLACE])
    assert not offsets.finish(old)
    assert offsets.receive(PLACE, 8) is None
    offsets.assign([PLACE])
    assert not offsets.finish(old)
    assert offsets.to_commit() == {}


def test_a_partition_that_comes_back_begins_with_an_empty_map() -> None:
    """What was open before it left holds nothing up."""
    offsets = AssignedOffsets()
    offsets.assign([PLACE])
    received(offsets, [1, 2])
    offsets.forget([PLACE])
    offsets.assign([PLACE])
    (again,) = received(offsets, [9])
    offsets.finish(again)
    assert offsets.to_commit() == {PLACE: 10}


def test_a_partition_that_is_held_up_is_named() -> None:
    """One record that is not done lets only so many others pass."""
    offsets = AssignedOffsets()
    offsets.assign([PLACE, ("orders", 1)])
    received(offsets, [1, 2, 3])
    assert offsets.full(3) == [PLACE]
    assert offsets.full(4) == []
