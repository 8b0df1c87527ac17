"""What the process has answered, for `/metrics`. Labels are routes and statuses: never an id or a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Counting:
    """Counts of one process."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()  # by route and status

    def text(self, others: Mapping[str, int]) -> str:
        """The counts in the Prometheus text format, with others beside them, by name."""
        lines = ["# TYPE oncegate_http_requests_total counter"]
        for (route, status), count in sorted(self.answers.items()):
            lines.append(f'oncegate_http_requests_total{{route="{route}",status="{status}"}} {count}')
        for name, value in others.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# TYPE oncegate_http_{name} {kind}", f"oncegate_http_{name} {value}"]
        return "\n".join(lines) + "\n"
