"""What is emitted faster than it can be sent is refused in the end, with a typed error (I18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.errors import Backlogged, BadOutgoing
from oncegate.model.backlog import ADDED_MAX, Backlog
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.store import Acknowledgement, HeadsWanted, Outgoing
from oncegate.store.lanes import NAME_BYTES_MAX
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from oncegate.wiring.sender import Sender

SECRET = "whsec_" + "QUFB" * 8


def outgoing(key: str = "k", event_id: str = "i") -> Outgoing:
    return Outgoing("e", "", key, event_id, "t", b"{}", b"f", 1)


def test_full_lane_refuses_with_429(tmp_path: Path) -> None:
    """Nothing is stored; what is known stays known; another key is not affected."""
    with Sender(f"sqlite:///{tmp_path}/l.db", backlog_max=1) as sender:
        sender.endpoints.add(
            new_endpoint("e", "https://example.com/", secret=SECRET), EndpointChange("ann", "test")
        )

        def emit(event_id: str, key: str) -> int:
            return sender.emit_sync("e", key=key, type="t", payload={}, event_id=event_id).seq

        assert (emit("a1", "a"), emit("b1", "b"), emit("a1", "a")) == (1, 1, 1)
        with pytest.raises(Backlogged, match="wait for e already") as refused:
            emit("a2", "a")

        assert refused.value.status == 429
        with sender.commits.store.look() as reader:
            (view,) = reader.destinations()
        assert view.events == 2


def test_full_destination_refuses_until_something_has_gone(tmp_path: Path) -> None:
    """Counted over all keys; counted again after a second, and there is room as soon as some have gone."""
    clock = ManualClock()
    store = SqliteStore(tmp_path / "l.db", clock=clock)
    with Sender(store=store, clock=clock) as sender:
        sender.backlog = Backlog(3)
        sender.endpoints.add(
            new_endpoint("e", "https://example.com/", secret=SECRET), EndpointChange("ann", "test")
        )

        def emit(key: str) -> int:
            return sender.emit_sync("e", key=key, type="t", payload={}).seq

        assert [emit("a"), emit("b"), emit("b")] == [1, 1, 2]
        with pytest.raises(Backlogged, match="about 3 events"):
            emit("c")
        clock.advance(11)
        with pytest.raises(Backlogged):
            emit("c")
        session = store.connect()
        with session.unit():
            (head,) = session.lease_heads(HeadsWanted((("e", 1),), 60_000, 7)).deliveries
            session.finish(
                [Acknowledgement(head.lane_id, head.seq, head.fence, head.holder, head.event_id, 1)]
            )
        session.close()
        with pytest.raises(Backlogged):
            emit("c")
        clock.advance(1)
        assert emit("c") == 1


def test_many_new_events_are_reason_to_count() -> None:
    """Not only time: whoever emits fast is counted often, and one asker of many counts."""
    backlog = Backlog()
    assert [backlog.must_count("e", 0) for _ in range(3)] == [True, False, False]
    backlog.counted("e", 5, 0)
    for _ in range(ADDED_MAX):
        assert backlog.takes_one("e")
    assert [backlog.must_count("e", 1) for _ in range(2)] == [True, False]


def test_names_that_no_store_could_index_are_refused_at_the_edge() -> None:
    """Keys and ids: not empty, not longer than an index takes in bytes, and Unicode."""
    longest = "k" * NAME_BYTES_MAX
    assert outgoing(key=longest, event_id=longest).key == longest
    for bad in ("", "k" * (NAME_BYTES_MAX + 1), "\u4e00" * (NAME_BYTES_MAX // 3 + 1), "\ud800"):
        with pytest.raises(BadOutgoing):
            outgoing(key=bad)
        with pytest.raises(BadOutgoing):
            outgoing(event_id=bad)
