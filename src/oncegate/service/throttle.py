"""How much is done at once, by each tenant and altogether; beyond it a request is refused, not queued."""

from __future__ import annotations

from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.service.messages import RequestDenied

RETRY_SECONDS = 1.0


class ConcurrencyLimiter:
    """Counts requests under way in this process."""

    def __init__(self, total_max: int, tenant_max: int) -> None:
        self._total_max, self._tenant_max = total_max, tenant_max
        self._tenants: dict[str, int] = {}
        self.total = 0
        self.shed = 0

    def entered(self) -> _Entered:
        """Counts a request before anything is known of it; 503 at the limit."""
        return _Entered(self)

    def tenant(self, tenant: str) -> _OfTenant:
        """Counts a tenant's request; 429 at its limit, so that one cannot take the others' room."""
        return _OfTenant(self, tenant)

    def take(self, tenant: str) -> None:
        """Counts a request whose tenant is known, or refuses it; the caller releases what it took."""
        running = self._tenants.get(tenant, 0)
        if self.total < self._total_max and running < self._tenant_max:  # as a rule; in one step
            self.total += 1
            self._tenants[tenant] = running + 1
            return
        self.enter()
        try:
            self.enter_tenant(tenant)
        except RequestDenied:
            self.total -= 1
            raise

    def give_back(self, tenant: str) -> None:
        """Counts one less, altogether and of its tenant."""
        self.total -= 1
        if (running := self._tenants[tenant]) > 1:
            self._tenants[tenant] = running - 1
        else:
            self.leave_tenant(tenant)

    def enter(self) -> None:
        """Counts one more."""
        if self.total >= self._total_max:
            self.shed += 1
            raise RequestDenied(Problem(ProblemKind.OVERLOADED, "try again in a moment", RETRY_SECONDS))
        self.total += 1

    def enter_tenant(self, tenant: str) -> None:
        """Counts one more of a tenant."""
        running = self._tenants.get(tenant, 0)
        if running >= self._tenant_max:
            self.shed += 1
            detail = f"at most {self._tenant_max} at once; try again in a moment"
            raise RequestDenied(Problem(ProblemKind.TOO_MANY, detail, RETRY_SECONDS))
        self._tenants[tenant] = running + 1

    def leave_tenant(self, tenant: str) -> None:
        """Counts one less of a tenant."""
        left = self._tenants[tenant] - 1
        if left:
            self._tenants[tenant] = left
        else:
            del self._tenants[tenant]


class _Entered:
    """A request under way. A class of its own: a generator costs several times as much."""

    __slots__ = ("_throttle",)

    def __init__(self, throttle: ConcurrencyLimiter) -> None:
        self._throttle = throttle

    def __enter__(self) -> None:
        self._throttle.enter()

    def __exit__(self, *_: object) -> None:
        self._throttle.total -= 1


class _OfTenant:
    """A tenant's request under way."""

    __slots__ = ("_tenant", "_throttle")

    def __init__(self, throttle: ConcurrencyLimiter, tenant: str) -> None:
        self._throttle, self._tenant = throttle, tenant

    def __enter__(self) -> None:
        self._throttle.enter_tenant(self._tenant)

    def __exit__(self, *_: object) -> None:
        self._throttle.leave_tenant(self._tenant)
