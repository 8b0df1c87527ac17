"""Loggers that a program configures once and for all, given back as they were.

A command that is run inside the test process sends its log to a stream that only lasts as long as the test.
Whatever is logged later would find that stream closed, and Python would print that on top of a test run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

CONFIGURED = ("", "uvicorn", "uvicorn.access", "uvicorn.error")  # by oncegate's commands, and by uvicorn


@contextmanager
def loggers_as_they_were() -> Iterator[None]:
    """Whatever is done to these loggers in the block is undone at its end."""
    loggers = [logging.getLogger(name) for name in CONFIGURED]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    try:
        yield
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)
