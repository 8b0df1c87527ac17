"""Who gets alarms: a log, or whatever a user plugs in.

A notifier gets each notice once (`alarms.py` sees to that) and may fail: the others get it all the same.
A webhook needs a client that posts for it: hand in the guarded client of `oncegate.sender`, or your
own; nothing here opens a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from oncegate.signals.alarms import AlarmChange, AlarmNotice
from oncegate.signals.definition import Level

log = logging.getLogger("oncegate.signals")

Post = Callable[[str, bytes, Mapping[str, str]], int]
_LOG_LEVELS: Final = {Level.OK: logging.INFO, Level.TICKET: logging.WARNING, Level.PAGE: logging.ERROR}
_ANSWERED: Final = range(200, 300)


class Notifier(Protocol):
    """Sends a notice to people."""

    def notify(self, notice: AlarmNotice) -> None:
        """Tells about one notice; may raise."""


class LogNotifier:
    """Writes notices to the log `oncegate.signals`: pages as errors, tickets as warnings."""

    def notify(self, notice: AlarmNotice) -> None:
        """Writes one line."""
        signal = notice.signal
        log.log(
            _LOG_LEVELS[notice.level if notice.change is not AlarmChange.CALMED else Level.OK],
            "%s %s%s: %.4g (limit %s)%s. %s",
            notice.change.value, signal.definition.name, f" on {signal.surface}" if signal.surface else "",
            signal.value, signal.limit, f", {signal.detail}" if signal.detail else "",
            signal.definition.meaning,
        )  # fmt: skip


class WebhookNotifier:
    """Posts notices as JSON. `post(url, body, headers)` sends one request and returns its status."""

    def __init__(self, url: str, post: Post) -> None:
        self._url = url
        self._post = post

    def notify(self, notice: AlarmNotice) -> None:
        """Posts one notice; any answer but a 2xx is an error."""
        status = self._post(self._url, notice_body(notice), {"content-type": "application/json"})
        if status not in _ANSWERED:
            raise ConnectionError(f"the webhook for alarms answered {status}")


def notice_body(notice: AlarmNotice) -> bytes:
    """A notice as JSON."""
    signal = notice.signal
    return msgspec.json.encode(
        {
            "change": notice.change.value,
            "level": notice.level.label,
            "signal": signal.definition.name,
            "surface": None,
            **({signal.definition.label: signal.surface} if signal.surface else {}),
            "value": signal.value,
            "limit": signal.limit,
            "detail": signal.detail,
            "meaning": signal.definition.meaning,
            "action": signal.action,
        }
    )
