"""Alarms by e-mail, one message a notice. Must never put the password into an error or a log."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from enum import Enum
from typing import Final

from msgspec import Struct

from oncegate.errors import ConfigError
from oncegate.model.escape import visible
from oncegate.signals.alarms import AlarmNotice

TIMEOUT_SECONDS: Final = 10.0  # a watch that waits for a mail server does not watch


class Tls(Enum):
    """How a mail server is spoken to."""

    STARTTLS = "starttls"
    IMPLICIT = "implicit"
    NONE = "none"


class MailServer(Struct, frozen=True):
    """Where mail is handed in. A user signs in with a password, never without TLS."""

    host: str
    port: int = 587
    tls: Tls = Tls.STARTTLS
    user: str | None = None
    password: str | None = None

    def __post_init__(self) -> None:
        if self.user is not None and self.tls is Tls.NONE:
            raise ConfigError("a password is not sent to a mail server without TLS")

    def __repr__(self) -> str:
        return f"MailServer({self.host}:{self.port}, {self.tls.value})"


class MailNotifier:
    """Sends each notice from one address to some others."""

    def __init__(self, server: MailServer, sender: str, to: Sequence[str]) -> None:
        if not to or isinstance(to, str):
            raise ConfigError("alarms by e-mail need a list of addresses to go to")
        for address in (sender, *to):
            if "@" not in address or not address.isprintable():
                raise ConfigError(f"{address[:80]!r} is not an e-mail address")
        self._server, self._sender, self._to = server, sender, tuple(to)

    def notify(self, notice: AlarmNotice) -> None:
        """Hands one message in; raises where the server does not take it."""
        message = EmailMessage()
        message["From"], message["To"] = self._sender, ", ".join(self._to)
        message["Subject"] = _subject(notice)
        message.set_content(_text(notice))
        with self._connect() as connection:
            if self._server.user is not None:
                connection.login(self._server.user, self._server.password or "")
            connection.send_message(message)

    def _connect(self) -> smtplib.SMTP:
        server, context = self._server, ssl.create_default_context()
        if server.tls is Tls.IMPLICIT:
            return smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_SECONDS, context=context)
        connection = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_SECONDS)
        if server.tls is Tls.STARTTLS:
            connection.starttls(context=context)
        return connection


def _subject(notice: AlarmNotice) -> str:
    signal = notice.signal
    where = f" on {visible(signal.surface)}" if signal.surface else ""
    return f"[oncegate {notice.level.label}] {signal.definition.name}{where}: {notice.change.value}"


def _text(notice: AlarmNotice) -> str:
    signal = notice.signal
    unit = signal.definition.unit
    limit = "" if signal.limit is None else f" (limit {unit.shown(signal.limit)})"
    lines = (
        f"{signal.definition.title}: {unit.shown(signal.value)}{limit}",
        visible(signal.detail),
        f"What it means: {signal.definition.meaning}.",
        f"What to do: {visible(signal.action)}",
    )
    return "\n".join(line for line in lines if line) + "\n"
