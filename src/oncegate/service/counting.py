"""What the process has answered, for `/metrics`. Labels are routes and statuses: never an id or a name."""

from __future__ import annotations

from collections import Counter


class Counting:
    """Counts of one process."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()  # by route and status

    def text(self, in_flight: int, shed: int, arriving: int = 0, cut: int = 0) -> str:
        """The counts in the Prometheus text format."""
        lines = ["# TYPE oncegate_http_requests_total counter"]
        for (route, status), count in sorted(self.answers.items()):
            lines.append(f'oncegate_http_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += [
            "# TYPE oncegate_http_requests_in_flight gauge",
            f"oncegate_http_requests_in_flight {in_flight}",
            "# TYPE oncegate_http_requests_shed_total counter",
            f"oncegate_http_requests_shed_total {shed}",
            "# TYPE oncegate_http_bodies_arriving gauge",
            f"oncegate_http_bodies_arriving {arriving}",
            "# TYPE oncegate_http_bodies_cut_total counter",
            f"oncegate_http_bodies_cut_total {cut}",
        ]
        return "\n".join(lines) + "\n"
