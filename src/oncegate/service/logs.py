"""Logs as one JSON object a line: what happened, never what was sent. Health checks are not logged."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from oncegate.clock import from_wall_ms

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Writes a record; extras come only from `extra={"oncegate": …}`."""
        line: dict[str, Any] = {
            "at": from_wall_ms(int(record.created * 1000)).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "oncegate", {}))
        if record.exc_info and record.exc_info[0] is not None:
            # The kind and the place, not the text: a message may quote what was sent.
            line["error"] = record.exc_info[0].__name__
            trace = record.exc_info[2]
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            line["at_line"] = (
                f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}" if trace else ""
            )
        return _encode(line).decode()


def log_as_json(level: int = logging.INFO) -> None:
    """Sends all logs to standard error as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
