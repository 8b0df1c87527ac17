"""The public `Sender`, and alarms that are posted through the sender's guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self, Unpack

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.gate.facade import GateOnStore
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.sender import SenderOnCommits
from oncegate.sender.settings import policy_from_environment
from oncegate.sender.urls import parse_endpoint_url
from oncegate.signals.notifiers import Notifier, WebhookNotifier
from oncegate.store import ClaimStore
from oncegate.store.lanes import LANE_BACKLOG_MAX
from oncegate.wiring import open_store

if TYPE_CHECKING:
    from oncegate.sender.delivery import DeliveryOptions, DeliveryService


class Sender(SenderOnCommits):
    """The sender on the ledger at `url`, else at ONCEGATE_URL, else in ./oncegate.db.

    Given a gate instead, it shares that gate's ledger and batches. `policy` says which addresses besides
    public https ones may be called; by default the environment does (`ONCEGATE_ALLOW_…`). `backlog_max` is
    how many events of one key may wait; emitting more raises Backlogged.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        gate: GateOnStore | None = None,
        store: ClaimStore | None = None,
        clock: Clock | None = None,
        policy: AddressPolicy | None = None,
        backlog_max: int = LANE_BACKLOG_MAX,
    ) -> None:
        self._owns_commits = gate is None
        if gate is not None:
            commits, clock = gate.engine.commits, clock or gate.engine.clock
        else:
            commits = GroupCommit(store if store is not None else open_store(url, clock=clock), clock=clock)
        policy = policy or policy_from_environment()
        super().__init__(commits, clock=clock, policy=policy, backlog_max=backlog_max)

    def delivering(self, **options: Unpack[DeliveryOptions]) -> DeliveryService:
        """Delivers in this process while an `async with` block lasts."""
        from oncegate.sender.connection import check_parser
        from oncegate.sender.delivery import DeliveryService

        check_parser()
        return DeliveryService(self, **options)

    def close(self) -> None:
        """Closes the ledger, unless it is a gate's."""
        if self._owns_commits:
            self.commits.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def alarm_webhook(url: str, policy: AddressPolicy | None = None) -> Notifier:
    """Posts alarms to an address that may be called; by default the environment says which may."""
    from oncegate.sender.posting import guarded_post

    policy = policy or policy_from_environment()
    parse_endpoint_url(url, policy)
    return WebhookNotifier(url, guarded_post(policy))


def alive_ping(url: str, policy: AddressPolicy | None = None) -> Callable[[], None]:
    """Posts nothing to an address that may be called: a dead man's ping."""
    from oncegate.sender.posting import guarded_post

    policy = policy or policy_from_environment()
    parse_endpoint_url(url, policy)
    post = guarded_post(policy)

    def ping() -> None:
        status = post(url, b"{}", {"content-type": "application/json"})
        if not 200 <= status < 300:
            raise ConnectionError(f"answered {status}")

    return ping
