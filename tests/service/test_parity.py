"""What the library's surfaces can do, the service's can: each setting from a file, over HTTP (F3)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate.model.redact import masked_excerpt
from oncegate.service.config_loader import read_configuration
from oncegate.service.settings import Settings
from oncegate.service.upstream_call import LOGGED_MAX
from oncegate.service.validation import find_mistakes
from oncegate.store import EntryFilter
from tests.service.site import BEARER, SECRET, Site, TeamHandler
from tests.service.test_config_loader import mistakes

HEAD = """
[network]
allow_http = true
allow_loopback = true
[downstreams.team]
url = "{url}"
[surfaces.hooks]
key = "{{id}}"
signature = "bearer"
secrets = ["$HOOKS"]
tenant = "acme"
forward = "team"
"""


def settings_of(tmp_path: Path, url: str, text: str) -> Settings:
    """The settings as the service reads them; whatever is wrong with them fails the test."""
    file, variables = tmp_path / "oncegate.toml", {"HOOKS": SECRET}
    file.write_text(HEAD.format(url=url) + text, "utf-8")

    async def found() -> Any:
        configuration = read_configuration(file, variables)
        assert find_mistakes(configuration, variables) == []
        return configuration.settings

    settings: Settings = asyncio.run(found())
    server = msgspec.structs.replace(settings.server, port=0, drain_within="5s")
    return msgspec.structs.replace(settings, server=server)


def test_events_go_to_the_surface_of_their_type(tmp_path: Path) -> None:
    """By `routes`; each type has its own key template, and an unknown type stays where it came in."""
    more = """
route_by = "kind"
[surfaces.hooks.routes]
"order.paid" = "payments"
[surfaces.payments]
key = "{payment}"
tenant = "acme"
forward = "team"
"""
    team = TeamHandler()
    with team.serving() as url, Site(tmp_path, settings_of(tmp_path, url, more)).serving() as site:
        answers = [
            site.hook({"id": "1", "kind": "order.paid", "payment": "p-1"}),
            site.hook({"id": "2", "kind": "order.seen"}),
            site.hook({"id": "3"}),
            site.hook({"id": "1", "kind": "order.paid", "payment": "p-1"}),
        ]
        refused = site.call("POST", "/in/payments", {"payment": "p-2"}, BEARER)
        with site.gate.engine.store.look() as session:
            listed = [(entry.surface, entry.label) for entry in session.entries(EntryFilter(), None, 9)]

    assert [(one.status, one.document["replay"]) for one in answers] == [
        (200, False), (200, False), (200, False), (200, True)
    ]  # fmt: skip
    assert refused.status == 404
    assert sorted(listed) == [("hooks", "2"), ("hooks", "3"), ("payments", "p-1")]


def test_a_person_approves_before_anything_runs(tmp_path: Path) -> None:
    more = 'approve_first = true\ndecide_within = "30m"\n'
    team = TeamHandler()
    with team.serving() as url, Site(tmp_path, settings_of(tmp_path, url, more)).serving() as site:
        answer = site.hook({"id": "1"})
        rule = site.gate.engine.surface("hooks").rule

    assert (answer.status, answer.document["state"]) == (202, "held")
    assert team.got == []
    assert rule.decide_within is not None
    assert rule.decide_within.total_seconds() == 1800


def test_the_same_change_under_two_keys_is_marked(tmp_path: Path) -> None:
    """`content`: two keys, one change; the scan compares the marks."""
    more = (
        '[surfaces.hooks.content]\nfields = ["amount"]\ntarget = "{client}"\ncompensation = "refund {id}"\n'
    )
    team = TeamHandler()
    with team.serving() as url, Site(tmp_path, settings_of(tmp_path, url, more)).serving() as site:
        for number in ("1", "2"):
            assert site.hook({"id": number, "client": "c", "amount": 5}).status == 200
        with site.gate.engine.store.look() as session:
            ((count,),) = session.execute("SELECT count(*) FROM oncegate_content", ())

    assert count == 2


def test_keys_may_be_kept_for_hours_only_where_the_floor_is_lowered(tmp_path: Path) -> None:
    text = HEAD.format(url="https://team.example")
    (found,) = mistakes(tmp_path, text + 'retention = "6h"\n', HOOKS=SECRET)
    assert "retention" in found
    assert "or lower retention_floor" in found
    more = 'retention_floor = "1h"\nretention = "6h"\n[surfaces.hooks.retention_by_partner]\nacme = "2h"\n'
    rules = settings_of(tmp_path, "https://team.example", more)
    with Site(tmp_path, rules).serving() as site:
        rule = site.gate.engine.surface("hooks").rule
    assert (rule.retention.total_seconds(), rule.retention_by_partner["acme"].total_seconds()) == (
        21600,
        7200,
    )


def test_journeys_and_late_replays_are_declared(tmp_path: Path) -> None:
    """The correlation id of the event travels to the handler."""
    more = 'correlation = "trip"\nlate_replay_after = "10m"\ntime_limit = "1m"\n'
    team = TeamHandler()
    with team.serving() as url, Site(tmp_path, settings_of(tmp_path, url, more)).serving() as site:
        site.hook({"id": "1", "trip": "T-9"})
        rule = site.gate.engine.surface("hooks").rule

    assert team.headers[0]["x-correlation-id"] == "T-9"
    assert (rule.late_replay_after.total_seconds(), rule.time_limit.total_seconds()) == (600, 60)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[surfaces.hooks.routes]\na = "b"\n', "routes needs route_by"),
        ('route_by = "t"\n[surfaces.hooks.routes]\na = "b"\n', "there is no [surfaces.b]"),
        ('decide_within = "soon"\n', "soon"),
        ("[surfaces.hooks.content]\nfields = []\ntarget = '{a}'\n", "content"),
        ('[surfaces.hooks.content]\nfields = ["a"]\n', "missing required field `target`"),
        ('[surfaces.alone]\nkey = "{id}"\ntenant = "t"\n', "no source or route brings its events"),
        (
            'route_by = "t"\nroutes = {a = "b"}\n[surfaces.b]\nkey = "{id}"\ntenant = "other"\n',
            "b has the tenant other",
        ),
        (
            (
                '[surfaces.git]\nprovider = "github"\nsecrets = ["$HOOKS"]\ntenant = "t"\n'
                'routes = {push = "hooks"}\n'
            ),
            "does not sign the type",
        ),
    ],
)
def test_what_cannot_be_used_is_told_with_its_line(tmp_path: Path, more: str, told: str) -> None:
    found = mistakes(tmp_path, HEAD.format(url="https://team.example") + more, HOOKS=SECRET)

    assert any(told in one for one in found), found
    assert all(one.startswith("oncegate.toml:") for one in found)


def test_a_refusal_of_the_handler_is_the_entrys_reason_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Surface, key, downstream, status and the first words of the body, without what is personal."""
    team = TeamHandler()
    team.status = 422
    team.body = b'{"error": "no slot at 07:00 for ann@example.com", "card": 4242424242424242}'
    with (
        caplog.at_level(logging.WARNING, "oncegate.service"),
        team.serving() as url,
        Site(tmp_path, settings_of(tmp_path, url, "")).serving() as site,
    ):
        answer = site.hook({"id": "1"})
        for number in range(LOGGED_MAX + 4):
            site.hook({"id": f"more-{number}"})
        with site.gate.engine.store.look() as session:
            reasons = {entry.reason for entry in session.entries(EntryFilter(), None, 99)}

    said = 'the handler answered 422: {"error": "no slot at 07:00 for …", "card": …}'
    assert reasons == {said}
    assert b"slot" not in answer.body  # what a handler says is not for the sender
    records = [record for record in caplog.records if "downstream team" in record.getMessage()]
    assert len(records) == LOGGED_MAX
    extras: dict[str, Any] = vars(records[0])["oncegate"]
    assert (extras["surface"], extras["downstream"], extras["status"]) == ("hooks", "team", 422)
    assert extras["cause"] == "Failed"
    assert extras["body"] == said.partition(": ")[2]
    assert len(extras["key"]) > 40


def test_a_handler_that_is_not_there_is_logged_with_its_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "oncegate.service"),
        Site(tmp_path, settings_of(tmp_path, "http://127.0.0.1:9/", "")).serving() as site,
    ):
        site.hook({"id": "1"})

    (record,) = [one for one in caplog.records if "downstream team" in one.getMessage()]
    extras: dict[str, Any] = vars(record)["oncegate"]
    assert extras["status"] is None
    assert "not reached" in extras["cause"]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        (b" a \n  b ", "a b"),
        (b"\xff\x00x", "\ufffd"),
        (b"token sk_live_4eC39HqLyjWDarjtT1zdp7dc done", "token … done"),
        (b"x " * 500, "x "),
    ],
)
def test_an_excerpt_is_short_and_shows_no_secret(body: bytes, shown: str) -> None:
    found = masked_excerpt(body)

    assert found.startswith(shown)
    assert len(found) <= 200
