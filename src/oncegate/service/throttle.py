"""How much is done at once, by each tenant and altogether; beyond it a request is refused, not queued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.service.messages import Refused

RETRY_SECONDS = 1.0


class Throttle:
    """Counts requests under way in this process."""

    def __init__(self, total_max: int, tenant_max: int) -> None:
        self._total_max, self._tenant_max = total_max, tenant_max
        self._tenants: dict[str, int] = {}
        self.total = 0
        self.shed = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Counts a request before anything is known of it; 503 at the limit."""
        if self.total >= self._total_max:
            self.shed += 1
            raise Refused(Problem(ProblemKind.OVERLOADED, "try again in a moment", RETRY_SECONDS))
        self.total += 1
        try:
            yield
        finally:
            self.total -= 1

    @contextmanager
    def tenant(self, tenant: str) -> Iterator[None]:
        """Counts a tenant's request; 429 at its limit, so that one cannot take the others' room."""
        running = self._tenants.get(tenant, 0)
        if running >= self._tenant_max:
            self.shed += 1
            detail = f"at most {self._tenant_max} at once; try again in a moment"
            raise Refused(Problem(ProblemKind.TOO_MANY, detail, RETRY_SECONDS))
        self._tenants[tenant] = running + 1
        try:
            yield
        finally:
            left = self._tenants[tenant] - 1
            if left:
                self._tenants[tenant] = left
            else:
                del self._tenants[tenant]
