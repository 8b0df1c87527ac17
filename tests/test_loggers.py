"""No test leaves a logger behind that writes to a stream which ended with the test."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable

import pytest
import uvicorn

from oncegate.service.logs import log_as_json
from tests.support.loggers import loggers_as_they_were


def server_of_its_own() -> None:
    uvicorn.Config(lambda: None, log_level="warning")


@pytest.mark.parametrize(
    ("configure", "name"),
    [(log_as_json, "oncegate.service"), (server_of_its_own, "uvicorn.error")],
)
def test_later_lines_do_not_meet_the_stream_of_a_test_that_is_over(
    configure: Callable[[], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a command that logged to a test's stream, now closed; then a later line is no trouble."""
    complaints = io.StringIO()
    with loggers_as_they_were():
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        configure()
        sys.stderr.close()
    monkeypatch.setattr(sys, "stderr", complaints)

    logging.getLogger(name).error("a later line")

    assert complaints.getvalue() == ""


def test_levels_and_ways_are_as_they_were() -> None:
    root, server = logging.getLogger(), logging.getLogger("uvicorn")
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in (root, server)]
    with loggers_as_they_were():
        log_as_json()
        server_of_its_own()

    assert [(logger.handlers, logger.level, logger.propagate) for logger in (root, server)] == before


def test_every_test_is_followed_by_it(request: pytest.FixtureRequest) -> None:
    assert "kept_loggers" in request.fixturenames
