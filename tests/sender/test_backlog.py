"""What is emitted faster than it can be sent is refused in the end, with a typed error (I18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.errors import Backlogged, BadOutgoing
from oncegate.sender.book import Change
from oncegate.sender.endpoints import new_endpoint
from oncegate.store import Outgoing
from oncegate.store.lanes import NAME_BYTES_MAX
from oncegate.wiring import Sender

SECRET = "whsec_" + "QUFB" * 8


def outgoing(key: str = "k", event_id: str = "i") -> Outgoing:
    return Outgoing("e", "", key, event_id, "t", b"{}", b"f", 1)


def test_full_lane_refuses_with_429(tmp_path: Path) -> None:
    """Nothing is stored; what is known stays known; another key is not affected."""
    with Sender(f"sqlite:///{tmp_path}/l.db", backlog_max=1) as sender:
        sender.endpoints.add(
            new_endpoint("e", "https://example.com/", secret=SECRET), Change("ann", "test")
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


def test_names_that_no_store_could_index_are_refused_at_the_edge() -> None:
    """Keys and ids: not empty, not longer than an index takes in bytes, and Unicode."""
    longest = "k" * NAME_BYTES_MAX
    assert outgoing(key=longest, event_id=longest).key == longest
    for bad in ("", "k" * (NAME_BYTES_MAX + 1), "\u4e00" * (NAME_BYTES_MAX // 3 + 1), "\ud800"):
        with pytest.raises(BadOutgoing):
            outgoing(key=bad)
        with pytest.raises(BadOutgoing):
            outgoing(event_id=bad)
