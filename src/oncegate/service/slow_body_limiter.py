"""Room for bodies that are still arriving: bounded altogether and for each peer.

Nothing shows yet whose they are, so they take no tenant's room. At a bound, the peer with most bodies loses
its oldest one to the new one. A client that sends slowly on purpose only pushes out what is slowest, and a
body that comes at once never waits here. Must never hold anything of a body itself.
"""

from __future__ import annotations

from typing import Final, Protocol

TOTAL_MAX: Final = 512
PEER_MAX: Final = 128  # a load balancer is one peer for everybody behind it


class Arriving(Protocol):
    """A connection on which a body is arriving."""

    def cut_off(self) -> None:
        """Ends it; its place is taken already."""


class ArrivingBodies:
    """The bodies that are arriving at one process."""

    def __init__(self, total_max: int = TOTAL_MAX, peer_max: int = PEER_MAX) -> None:
        self._total_max, self._peer_max = total_max, peer_max
        self._peers: dict[str, dict[Arriving, None]] = {}  # oldest first
        self.total = 0
        self.cut = 0

    def enter(self, peer: str, connection: Arriving) -> None:
        """Takes one more, for which another may have to go."""
        if len(self._peers.get(peer, ())) >= self._peer_max:
            self._cut_oldest(peer)
        elif self.total >= self._total_max:
            self._cut_oldest(max(self._peers, key=lambda name: len(self._peers[name])))
        self._peers.setdefault(peer, {})[connection] = None
        self.total += 1

    def leave(self, peer: str, connection: Arriving) -> None:
        """One less, because it is complete or gone; once is enough, twice does no harm."""
        of_peer = self._peers.get(peer)
        if of_peer is None or connection not in of_peer:
            return
        del of_peer[connection]
        self.total -= 1
        if not of_peer:
            del self._peers[peer]

    def _cut_oldest(self, peer: str) -> None:
        oldest = next(iter(self._peers[peer]))
        self.leave(peer, oldest)
        self.cut += 1
        oldest.cut_off()
