"""How many connections a process has: bounded altogether, and idle ones for each address.

At a bound, idle connections make room, the oldest first: those of the new connection's own address, then
those of the address with the most connections, then any. Where no connection is idle, the new one is
refused. Must never close a connection with a request under way to make room for another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

TOTAL_MAX: Final = 4096
PEER_MAX: Final = 1024  # a load balancer is one address for all clients behind it
AT_ONCE_SHARE: Final = 32  # so many at least are looked through for each one that is closed


class ClientConnection(Protocol):
    """One connection of the process."""

    def idle_since(self) -> float | None:
        """The loop's time since which it has nothing under way; None while it has."""

    def make_room(self) -> None:
        """Closes it; its place is taken already."""


class Connections:
    """The connections of one process, by address."""

    def __init__(self, total_max: int = TOTAL_MAX, peer_max: int = PEER_MAX) -> None:
        self.total_max = total_max  # may be set lower by the limit of open files
        self._peer_max = peer_max
        self._peers: dict[str, dict[ClientConnection, None]] = {}
        self.total = 0
        self.closed = 0  # idle ones, to make room
        self.refused = 0

    def enter(self, peer: str, connection: ClientConnection) -> bool:
        """Takes one more, for which idle ones may have to go; False where there is no room."""
        if len(self._peers.get(peer, ())) >= self._peer_max:
            self._close_idle([peer])
        if self.total >= self.total_max:
            most = max(self._peers, key=lambda name: len(self._peers[name]))
            if not self._close_idle([most]):
                self._close_idle(list(self._peers))
        if self.total >= self.total_max:
            self.refused += 1
            return False
        self._peers.setdefault(peer, {})[connection] = None
        self.total += 1
        return True

    def leave(self, peer: str, connection: ClientConnection) -> None:
        """One less; leaving twice does no harm."""
        of_peer = self._peers.get(peer)
        if of_peer is None or connection not in of_peer:
            return
        del of_peer[connection]
        self.total -= 1
        if not of_peer:
            del self._peers[peer]

    def _close_idle(self, peers: Iterable[str]) -> bool:
        """Closes some of the oldest at once, so that a flood does not look through all for each one."""
        found = [(peer, one) for peer in peers for one in self._peers[peer]]
        idle = [(since, peer, one) for peer, one in found if (since := one.idle_since()) is not None]
        idle.sort(key=lambda item: item[0])
        for _, peer, one in idle[: max(1, len(idle) // AT_ONCE_SHARE)]:
            self.leave(peer, one)
            self.closed += 1
            one.make_room()
        return bool(idle)
