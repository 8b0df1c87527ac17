"""Alarms as settings say: whom they go to, by which limits, and the dead man's ping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncegate.errors import ConfigError
from oncegate.service.settings import AlarmsSettings, LimitSettings, Settings
from oncegate.signals.commands import CommandNotifier
from oncegate.signals.definitions import Limits, Thresholds
from oncegate.signals.mail import MailNotifier, MailServer, Tls
from oncegate.signals.notifiers import LogNotifier, Notifier
from oncegate.wiring.sender import alarm_webhook


def limits_of(given: Mapping[str, LimitSettings]) -> Limits:
    """Limits as the signals take them."""
    return {name: (one.ticket, one.page) for name, one in given.items()}


def thresholds_of(settings: Settings) -> Thresholds:
    """The limits of the whole and of single surfaces; raises ConfigError for a signal that is none."""
    places = {name: limits_of(one.limits) for name, one in settings.surfaces.items() if one.limits}
    return Thresholds(limits_of(settings.alarms.limits), places=places)


def alarm_options(settings: Settings, environment: Mapping[str, str]) -> dict[str, Any]:
    """What `gate.worker` takes of the settings; raises ConfigError naming what cannot be used."""
    one = settings.alarms
    notifiers: list[Notifier] = [LogNotifier()]
    if (webhook := _secret("alarms.webhook", one.webhook, environment)) is not None:
        notifiers.append(alarm_webhook(webhook))
    if one.email_to:
        notifiers.append(_mail(one, environment))
    if one.command:
        notifiers.append(CommandNotifier(one.command))
    ping = _secret("alarms.ping", one.ping, environment)
    return {"notifiers": notifiers, "thresholds": thresholds_of(settings), "ping": ping}


def _mail(one: AlarmsSettings, environment: Mapping[str, str]) -> MailNotifier:
    if one.smtp is None or one.email_from is None:
        raise ConfigError("alarms.email_to needs alarms.smtp, such as smtp.example.com:587, and email_from")
    host, _, port = one.smtp.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError("alarms.smtp is HOST:PORT, such as smtp.example.com:587")
    try:
        tls = Tls(one.smtp_tls)
    except ValueError:
        raise ConfigError("alarms.smtp_tls is starttls, implicit or none") from None
    user = _secret("alarms.smtp_user", one.smtp_user, environment)
    password = _secret("alarms.smtp_password", one.smtp_password, environment)
    return MailNotifier(MailServer(host, int(port), tls, user, password), one.email_from, one.email_to)


def _secret(place: str, text: str | None, environment: Mapping[str, str]) -> str | None:
    """A value, or that of the variable it names."""
    if text is None or not text.startswith("$"):
        return text
    found = environment.get(text[1:])
    if not found:
        raise ConfigError(f"{place}: the environment has no {text[1:]}")
    return found
