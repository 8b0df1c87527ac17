"""Surfaces with a provider: the same event as a receiver gives, from a setting instead of a program."""

from __future__ import annotations

import base64
import hmac
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate.clock import SystemClock
from oncegate.receiver.providers import ProviderName
from oncegate.service.settings import Settings, SurfaceSettings
from oncegate.service.validation import read_and_check
from tests.service.site import SECRET, Site, TeamHandler, forwarding

JSON = {"content-type": "application/json"}


def provided(team: str, name: str, **more: Any) -> Settings:
    """Settings whose only surface is a provider's, brought to a team's address."""
    given = forwarding(team)
    surface = SurfaceSettings(
        provider=ProviderName(name), secrets=("$HOOKS",), tenant="acme", forward=_forward(given), **more
    )
    return msgspec.structs.replace(given, surfaces={"hooks": surface})


def _forward(given: Settings) -> str | None:
    return next(iter(given.surfaces.values())).forward


def stripe(body: bytes) -> dict[str, str]:
    """Stripe's signature, made now."""
    at_s = SystemClock().wall_ms() // 1000
    mac = hmac.new(SECRET.encode(), f"{at_s}.".encode() + body, sha256).hexdigest()
    return {**JSON, "stripe-signature": f"t={at_s},v1={mac}"}


def test_a_providers_webhook_runs_once_and_has_the_receivers_shape(tmp_path: Path) -> None:
    """Another count of pending webhooks is a repeat; another content is a conflict."""
    team = TeamHandler()
    bodies = [
        b'{"id":"evt_1","type":"charge.succeeded","pending_webhooks":2}',
        b'{"id":"evt_1","type":"charge.succeeded","pending_webhooks":1}',
        b'{"id":"evt_1","type":"charge.failed"}',
    ]
    with team.serving() as url, Site(tmp_path, provided(url, "stripe")).serving() as site:
        answers = [site.call("POST", "/in/hooks", body, stripe(body)) for body in bodies]
        forged = site.call("POST", "/in/hooks", bodies[0], {**JSON, "stripe-signature": "t=1,v1=00"})

    assert [one.status for one in (*answers, forged)] == [200, 200, 422, 401]
    assert [one.document["replay"] for one in answers[:2]] == [False, True]
    ((_, event),) = team.got
    payload = {"id": "evt_1", "type": "charge.succeeded", "pending_webhooks": 2}
    assert msgspec.json.decode(event) == {"id": "evt_1", "type": "charge.succeeded", "payload": payload}


def test_forms_and_greetings_are_taken(tmp_path: Path) -> None:
    """Twilio sends a form; Slack asks first whether the address is ours."""
    team, address = TeamHandler(), "https://hooks.example/in/hooks"
    mac = hmac.digest(SECRET.encode(), f"{address}MessageSidSM1".encode(), "sha1")
    form = {"content-type": "application/x-www-form-urlencoded"}
    with team.serving() as url:
        with Site(tmp_path, provided(url, "twilio", url=address)).serving() as site:
            signed = {**form, "x-twilio-signature": base64.b64encode(mac).decode()}
            taken = site.call("POST", "/in/hooks", b"MessageSid=SM1", signed)
        with Site(tmp_path, provided(url, "slack")).serving() as site:
            body, at_s = (
                b'{"type":"url_verification","challenge":"c-1"}',
                stripe(b"")["stripe-signature"][2:12],
            )
            mac = hmac.digest(SECRET.encode(), b"v0:" + at_s.encode() + b":" + body, "sha256")
            slack = {"x-slack-signature": f"v0={mac.hex()}", "x-slack-request-timestamp": at_s}
            greeted = site.call("POST", "/in/hooks", body, {**JSON, **slack})

    assert (taken.status, len(team.got)) == (200, 1)
    assert (greeted.status, greeted.document) == (200, {"challenge": "c-1"})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"provider": "twilio"}, "signs the address"),
        ({"provider": "stripe", "url": "https://a.example"}, "signs no address"),
        ({"provider": "stripe", "trust_id_header": True}, "signs its ids already"),
        ({}, "either provider"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    """With the place and what to write, before the service starts."""
    given_all = {"secrets": ["$HOOKS"], "tenant": "acme", **given}
    lines = [f"{name} = {json.dumps(value)}" for name, value in given_all.items()]
    file = tmp_path / "oncegate.toml"
    file.write_text("\n".join(["[surfaces.hooks]", *lines]), "utf-8")
    mistakes = [str(one) for one in read_and_check(file, {"HOOKS": SECRET})[1]]

    assert mistakes
    assert all("surfaces.hooks" in one and why in one for one in mistakes)
