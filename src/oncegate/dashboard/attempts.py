"""How often one address may try a wrong token: within a minute only a few, then it waits.

A token cannot be guessed; the limit bounds the work that a stranger causes, since every try reads the
ledger. The address is the one that the server reports, so behind a proxy the service must know the proxy
(`[server] trusted_proxies`), or all of its clients share one limit. Must never hold more than a bounded
number of addresses.
"""

from __future__ import annotations

import threading
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from oncegate.clock import Clock

WRONG_MAX: Final = 20
WINDOW_MS: Final = 60_000
ADDRESSES_MAX: Final = 10_000
_HOUSEHOLD_BITS: Final = 64  # one IPv6 client has so many addresses to choose from


class AttemptsView:
    """Wrong tokens of the last minute, by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: dict[str, tuple[int, int]] = {}

    def wait_seconds(self, place: str) -> int:
        """How long an address must wait before it may try again; 0 if it may now."""
        with self._lock:
            began_ms, count = self._wrong.get(_household(place), (0, 0))
            left_ms = began_ms + WINDOW_MS - self._clock.ticks_ms()
            return -(-left_ms // 1000) if count >= WRONG_MAX and left_ms > 0 else 0

    def wrong(self, place: str) -> None:
        """Counts a wrong token."""
        name, now_ms = _household(place), self._clock.ticks_ms()
        with self._lock:
            began_ms, count = self._wrong.pop(name, (now_ms, 0))
            if now_ms - began_ms >= WINDOW_MS:
                began_ms, count = now_ms, 0
            if len(self._wrong) >= ADDRESSES_MAX:
                del self._wrong[next(iter(self._wrong))]
            self._wrong[name] = (began_ms, count + 1)


def _household(place: str) -> str:
    """What an address is counted as: an IPv6 address by its network."""
    try:
        address = ip_address(place)
    except ValueError:
        return place
    if not isinstance(address, IPv6Address):
        return place
    return str(ip_network((int(address), _HOUSEHOLD_BITS), strict=False))
