"""The lease keeper: renews the claims of handlers that take long, up to their time limit.

One thread a gate, started by the first claim. A claim that cannot be renewed is marked lost, and what its
handler still tries is refused. Must never renew for ever: past the surface's time limit a claim lapses, and
one whose event loop is over lapses at once.
"""

from __future__ import annotations

import threading
from typing import Final

from oncegate.clock import Clock
from oncegate.commit.forks import here
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Renew
from oncegate.errors import StoreError
from oncegate.gate.runtime.claim import Claim
from oncegate.store import Renewal

RENEWALS_PER_LEASE: Final = 3  # two may fail before a lease lapses


class LeaseKeeper:
    """The claims of one gate that are being worked on."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock
        self._claims: dict[int, Claim] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._shortest_ms = float("inf")
        self._closed = False
        self._pid = here.pid

    def watch(self, claim: Claim) -> None:
        """Starts to look after a claim, whose lease has run since it was asked for."""
        if self._pid != here.pid:  # forked: no thread, and the parent's claims are not ours
            self._pid, self._claims, self._thread = here.pid, {}, None
        lease_ms = claim.surface.rule.lease_ms
        claim.watched_since_ms = claim.renewed_at_ms = claim.valid_until_ms - lease_ms
        self._claims[id(claim)] = claim
        if self._thread is None or lease_ms < self._shortest_ms:
            self._shortest_ms = min(lease_ms, self._shortest_ms)
            self._start()

    def release(self, claim: Claim) -> None:
        """Stops looking after a claim."""
        self._claims.pop(id(claim), None)

    def claims(self) -> list[Claim]:
        """The claims that are being worked on."""
        return [] if self._pid != here.pid else list(self._claims.values())

    def renew_due(self) -> int:
        """Renews every claim whose turn it is and returns how many were renewed."""
        now = self._clock.ticks_ms()
        self._release_deserted()
        due = [claim for claim in list(self._claims.values()) if self._is_due(claim, now)]
        return sum(self._renew(claim, now) for claim in due)

    def _release_deserted(self) -> None:
        for claim in list(self._claims.values()):
            if claim.is_deserted:
                self.release(claim)

    @staticmethod
    def _is_due(claim: Claim, now: int) -> bool:
        rule = claim.surface.rule
        interval_ms = rule.lease_ms / RENEWALS_PER_LEASE
        within_limit = now - claim.watched_since_ms <= rule.time_limit.total_seconds() * 1000
        return within_limit and not claim.lost and now - claim.renewed_at_ms >= interval_ms

    def _renew(self, claim: Claim, now: int) -> bool:
        lease_ms = claim.surface.rule.lease_ms
        try:
            kept = self._commits.submit(Renew(Renewal(*claim.id, lease_ms)))
        except StoreError:
            return False  # tried again at the next turn; if that fails too the lease lapses
        if not kept:
            claim.lost = not (claim.committed or claim.joined)
            return False
        claim.valid_until_ms = now + lease_ms
        claim.renewed_at_ms = now
        return True

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._wake.set()
            return
        self._thread = threading.Thread(target=self._run, name="oncegate-leases", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(self._shortest_ms / 1000 / RENEWALS_PER_LEASE / 2)
            self._wake.clear()
            if not self._closed:
                self.renew_due()

    def close(self) -> None:
        """Ends the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5.0)
