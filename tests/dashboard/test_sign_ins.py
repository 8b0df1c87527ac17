"""Signing in and out and planning are on record (who, when, what); refusals cannot flood the journal."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager

import pytest

from oncegate.cli.main import main
from oncegate.dashboard import sign_ins
from oncegate.dashboard.attempts import WRONG_MAX
from oncegate.dashboard.operators import Role
from oncegate.dashboard.sign_ins import WINDOW_MS, RefusedSignIns
from oncegate.errors import StoreFull
from oncegate.store import LogKind
from tests.dashboard.conftest import Site
from tests.dashboard.scene import Scene

SIGNING = (LogKind.SIGNED_IN, LogKind.SIGN_IN_REFUSED, LogKind.SIGNED_OUT)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, stage):
    """A page on either store."""
    if request.param == "sqlite":
        yield request.getfixturevalue("site")
        return
    scene = Scene(request.getfixturevalue("ledger_url"))
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        yield Site(scene, address)
    scene.gate.close()


def _told(site: Site, *kinds: LogKind) -> list[tuple[LogKind, str, str]]:
    with site.gate.engine.store.look() as session:
        found = session.log_before(None, 1_000, by_people=True)
    return [(one.kind, one.actor, one.note or "") for one in reversed(found) if one.kind in kinds]


def test_signing_in_and_out_is_on_record(place):
    client = place.client(Role.OPERATOR)
    assert client.post("/logout", {}).status == 303
    assert _told(place, *SIGNING) == [
        (LogKind.SIGNED_IN, "operator-all", "as operator, from 127.0.0.1"),
        (LogKind.SIGNED_OUT, "operator-all", "from 127.0.0.1"),
    ]
    text = place.client(Role.VIEWER).get("/journal").text
    assert "signed out" in text
    assert "as viewer, from 127.0.0.1" in text


def test_refusals_are_on_record_and_tell_no_token(place):
    client = place.client()
    for _ in range(WRONG_MAX - 1):
        assert client.sign_in("ogp_SECRETSECRET").status == 403
    notes = [note for _, actor, note in _told(place, LogKind.SIGN_IN_REFUSED) if actor == "page"]
    assert [note.partition(", the last")[0] for note in notes] == [
        "an unknown token, once",
        "an unknown token, 2 times in an hour",
        "an unknown token, 4 times in an hour",
        "an unknown token, 8 times in an hour",
        "an unknown token, 16 times in an hour",
    ]
    assert all(note.endswith("the last from 127.0.0.1") for note in notes)
    assert "SECRET" not in place.client(Role.VIEWER).get("/journal?all=1").text


def test_who_signs_in_finds_all_refusals_in_the_journal(place):
    stranger = place.client()
    for _ in range(7):
        stranger.sign_in("ogp_nobody")
    for _ in range(2):
        place.client(Role.VIEWER)
    notes = [note for _, _, note in _told(place, LogKind.SIGN_IN_REFUSED)]
    assert len(notes) == 4
    assert notes[-1] == "an unknown token, 7 times in an hour"


def test_a_plan_is_on_record_with_who_and_why(place):
    client = place.client(Role.APPROVER)
    form = place.form(client, q="reason:skew", verb="discard", reason="a rehearsal")
    assert client.post("/plans/entries", form).status == 303
    ((_, actor, note),) = _told(place, LogKind.PLAN_MADE)
    assert (actor, note.partition(" ")[0], note.partition(": ")[2]) == (
        "approver-all",
        "discard",
        "a rehearsal",
    )
    assert _told(place, LogKind.JOB_STARTED, LogKind.DISCARDED) == []


def test_whoever_was_not_signed_in_leaves_no_record_of_leaving(site):
    client = site.client()
    client.cookie = "oncegate_page=1.2.x.forged"
    assert client.post("/logout", {}).status == 303
    assert _told(site, *SIGNING) == []


def test_another_site_can_neither_sign_in_nor_out_nor_fill_the_journal(site):
    client = site.client(Role.VIEWER)
    before = _told(site, *SIGNING)
    assert client.post("/logout", {}, origin="https://evil.example").status == 403
    assert client.post("/login", {"token": "x"}, origin="https://evil.example").status == 403
    assert _told(site, *SIGNING) == before


def test_a_ledger_that_cannot_be_written_keeps_nobody_out(site, monkeypatch, caplog):
    """The night when the disk is full is when somebody must see the page."""
    token = site.token(Role.VIEWER)

    @contextmanager
    def full(*_, **__):
        raise StoreFull("the disk is full")
        yield

    monkeypatch.setattr(site.gate.engine.commits, "transaction", full)
    client = site.client()
    with caplog.at_level(logging.WARNING, "oncegate.page"):
        assert client.sign_in(token).status == 303
    assert client.get("/").status == 200
    assert "the journal cannot be written" in caplog.text


def test_what_changes_nothing_does_not_crowd_out_what_changed(site):
    """Now tells what changed in the last hour; forty sign-ins later it still does."""
    client, viewer = site.client(Role.OPERATOR), site.token(Role.VIEWER)
    lane = {"destination": "orders", "tenant": "acme", "key": "A-17", "seq": "1"}
    assert (
        client.post("/lanes/order/retry", site.form(client, **lane, reason="they are back")).status == 303
    )
    for _ in range(40):
        assert site.client().sign_in(viewer).status == 303
    text = client.get("/").text
    assert "they are back" in text
    assert "signed in" not in text.partition("last hour")[2]


def test_the_terminal_shows_the_same_journal(site, scene, capsys):
    site.client(Role.VIEWER)
    site.client().sign_in("ogp_nobody")
    url = f"sqlite:///{scene.gate.engine.store.path}"
    assert main(["journal", "--url", url, "--json", "--limit", "2"]) == 0
    ended = capsys.readouterr()
    refused, signed_in = (json.loads(line) for line in ended.out.splitlines())
    assert (refused["what"], refused["actor"], refused["entry"]) == ("sign_in_refused", "page", None)
    assert (signed_in["what"], signed_in["actor"]) == ("signed_in", "viewer-all")
    assert f"--before {signed_in['position']}" in ended.err
    assert main(["journal", "--url", url, "--before", str(signed_in["position"])]) == 0
    assert "settings changed" in capsys.readouterr().out
    assert main(["journal", "--url", url, "--all"]) == 0
    assert "quarantined" in capsys.readouterr().out


def test_the_journal_names_lanes_as_people_do(site, scene, capsys):
    """Not by a number that nobody has seen."""
    text = site.client(Role.VIEWER).get("/journal").text
    path = (
        text.partition(">A-17 to orders</a>")[0]
        .rpartition('href="')[2]
        .removesuffix('"')
        .replace("&amp;", "&")
    )
    client = site.client(Role.VIEWER)
    assert client.get(path.removeprefix(client.prefix)).status == 200
    assert main(["journal", "--url", f"sqlite:///{scene.gate.engine.store.path}"]) == 0
    assert "A-17 to orders" in capsys.readouterr().out


def test_a_new_hour_tells_what_the_last_one_kept_to_itself():
    refusals, start = RefusedSignIns(), 1_000_000_000_000
    told = [refusals.add(start + number) for number in range(7)]
    assert [one is not None for one in told] == [True, True, False, True, False, False, False]

    told_later = refusals.add(start + WINDOW_MS)

    assert told_later == "3 more in the hour that began before; an unknown token, once"
    assert refusals.add(start + WINDOW_MS - 5) is not None, "a clock that went back begins anew"


def test_a_flood_is_a_handful_of_records():
    refusals = RefusedSignIns()
    told = [refusals.add(1_000_000_000_000 + number) for number in range(100_000)]
    assert sum(one is not None for one in told) == 17
    assert sign_ins.WINDOW_MS > 100_000
