"""Answers of the protocol itself, where no application gives one; the connection ends with them."""

from __future__ import annotations

from typing import Final

from oncegate.integrations.problems import Problem, ProblemKind


def last_words(reason: str, problem: Problem) -> bytes:
    """An answer as it goes over the wire when no application gives one; the connection ends with it."""
    lines = [f"HTTP/1.1 {problem.status} {reason}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in problem.headers]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + problem.body


TIMED_OUT: Final = last_words(
    "Request Timeout", Problem(ProblemKind.TIMED_OUT, "send the whole request at once")
)
TOO_LARGE: Final = last_words(
    "Request Header Fields Too Large",
    Problem(ProblemKind.HEADERS_TOO_LARGE, "send fewer or shorter headers"),
)
MALFORMED: Final = last_words("Bad Request", Problem(ProblemKind.MALFORMED, "this is not HTTP"))
BODY_TOO_LARGE: Final = last_words(
    "Content Too Large", Problem(ProblemKind.BODY_TOO_LARGE, "there is more around the body than in it")
)
CROWDED: Final = last_words(
    "Service Unavailable",
    Problem(
        ProblemKind.OVERLOADED, "too many bodies arrive too slowly; send the whole request at once", 1.0
    ),
)
FULL: Final = last_words(
    "Service Unavailable",
    Problem(ProblemKind.OVERLOADED, "too many connections; close those you do not use", 1.0),
)
