"""Count requests, and write the counts as Prometheus reads them."""

from __future__ import annotations

import threading
from collections import Counter

# Upper ends of the intervals of the histogram of seconds.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """Requests by path and status, and their seconds.

    >>> metrics = Metrics()
    >>> metrics.count("/predict", 200, 0.004)
    >>> print(metrics.to_text({"vcr_kept_nodes": 3}).splitlines()[2])
    vcr_requests_total{path="/predict",status="200"} 1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[float] = Counter()
        self._sum = 0.0

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count one request."""
        with self._lock:
            self._requests[path, status] += 1
            self._seconds.update(end for end in SECONDS if seconds <= end)
            self._sum += seconds

    def to_text(self, gauges: dict[str, float]) -> str:
        """Return all numbers in the text format of Prometheus, with some more by name."""
        with self._lock:
            requests, seconds, total = dict(self._requests), dict(self._seconds), self._sum
        lines = ["# HELP vcr_requests_total Requests by path and status.", "# TYPE vcr_requests_total counter"]
        lines += [
            f'vcr_requests_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(requests.items())
        ]
        lines += ["# HELP vcr_request_seconds Seconds from request to answer.", "# TYPE vcr_request_seconds histogram"]
        lines += [f'vcr_request_seconds_bucket{{le="{end}"}} {seconds.get(end, 0)}' for end in SECONDS]
        count = sum(requests.values())
        lines += [f'vcr_request_seconds_bucket{{le="+Inf"}} {count}']
        lines += [f"vcr_request_seconds_sum {total:.6f}", f"vcr_request_seconds_count {count}"]
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"
