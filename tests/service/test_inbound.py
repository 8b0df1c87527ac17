"""Webhooks in: verified, admitted once, brought to the team's handler, answered by the verdict (A12)."""

from __future__ import annotations

import base64
import hmac
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate.crashpoints import CrashPoints
from oncegate.errors import StoreUnavailable
from oncegate.model.parking import Parking
from oncegate.model.surface import OnConflict
from oncegate.service.settings import SignatureScheme
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from oncegate.wiring import Gate
from tests.service.site import HOOKS, Site, TeamHandler, forwarding, settings


def test_a_webhook_runs_once_and_is_replayed(tmp_path: Path) -> None:
    """The handler gets the event once, with its key; the second answer says that it is a replay."""
    team = TeamHandler()
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site:
        first, second = site.hook({"id": "n-1", "box": "MSKU1"}), site.hook({"box": "MSKU1", "id": "n-1"})

    assert (first.status, first.document["replay"]) == (200, False)
    assert (second.status, second.document["replay"]) == (200, True)
    assert first.document["outcome"] == second.document["outcome"] == {"status": 200, "body": {"slot": 7}}
    ((key, body),) = team.got
    assert key == f'"{first.document["key"]}:forward"'
    assert msgspec.json.decode(body) == {"id": "n-1", "box": "MSKU1"}


def test_another_content_under_a_known_key_is_422_and_reveals_nothing(tmp_path: Path) -> None:
    team = TeamHandler()
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site:
        site.hook({"id": "n-1", "box": "MSKU1"})
        answer = site.hook({"id": "n-1", "box": "OTHER"})

    assert (answer.status, answer.problem) == (422, "conflict")
    assert b"slot" not in answer.body
    assert b"kept and waits for a person" in answer.body
    assert len(team.got) == 1


def test_a_surface_may_be_told_to_keep_no_conflicts(tmp_path: Path) -> None:
    team = TeamHandler()
    with team.serving() as url:
        given = forwarding(url, surface={"on_conflict": OnConflict.REFUSE})
        with Site(tmp_path, given).serving() as site:
            site.hook({"id": "n-1", "box": "MSKU1"})
            answer = site.hook({"id": "n-1", "box": "OTHER"})

    assert (answer.status, answer.problem) == (422, "conflict")
    assert b"kept" not in answer.body


def test_the_context_of_a_webhook_goes_on_to_the_handler(tmp_path: Path) -> None:
    """D9: what the request carried, the handler's request carries; one without has nothing of it."""
    team, parent = TeamHandler(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    given = {"x-correlation-id": "trip 7", "traceparent": parent, "tracestate": "a=1"}
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site:
        site.hook({"id": "n-1"}, **given)
        site.hook({"id": "n-2"})
        for name in ("x-correlation-id", "traceparent"):
            site.hook({"id": name}, **{name: given[name]})

    first, second, *others = team.headers
    assert {name: first.get(name) for name in given} == given
    assert not set(given) & set(second)
    assert [others[0]["x-correlation-id"], others[1]["traceparent"]] == ["trip 7", parent]


def test_while_it_runs_a_repeat_is_409(tmp_path: Path) -> None:
    team = TeamHandler()
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site:
        team.hold.clear()
        first = threading.Thread(target=site.hook, args=({"id": "n-1"},))
        first.start()
        wait_until(lambda: team.got, what="the handler to be called")
        busy = site.hook({"id": "n-1"})
        team.hold.set()
        first.join(DEADLINE_SECONDS)

    assert (busy.status, busy.problem) == (409, "busy")
    assert int(busy.headers["retry-after"]) >= 1
    assert len(team.got) == 1


def test_a_handler_that_honours_the_key_is_called_again_after_a_failure(tmp_path: Path) -> None:
    """503 tells the sender to come again; the second call carries the same key."""
    team = TeamHandler()
    team.status = 500
    with team.serving() as url, Site(tmp_path, forwarding(url, honours_key="7d")).serving() as site:
        failed = site.hook({"id": "n-1"})
        team.status = 200
        answer = site.hook({"id": "n-1"})

    assert (failed.status, failed.problem) == (503, "handler-failed")
    assert answer.status == 200
    assert len(team.got) == 2
    assert team.got[0] == team.got[1]


@pytest.mark.parametrize("body", [b"[" * 7000 + b"]" * 7000, b"\xff", b'{"a": 1e999}', b"x" * 20_000])
def test_an_answer_whose_body_cannot_be_kept_is_an_answer_all_the_same(tmp_path: Path, body: bytes) -> None:
    """The handler said 200: that is on record, and it is not called again."""
    team = TeamHandler()
    team.body = body
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site:
        answers = [site.hook({"id": "n-1"}) for _ in range(2)]

    outcome = {"status": 200, "body": None}
    assert [(one.status, one.document["outcome"]) for one in answers] == [(200, outcome)] * 2
    assert len(team.got) == 1


def test_a_handler_that_cannot_take_a_key_is_not_called_again(tmp_path: Path) -> None:
    """It may have acted: the event waits for a person (A4)."""
    team = TeamHandler()
    team.status = 500
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site:
        site.hook({"id": "n-1"})
        team.status = 200
        answer = site.hook({"id": "n-1"})

    assert (answer.status, answer.document["state"]) == (202, "held")
    assert len(team.got) == 1


def test_a_refusal_of_the_handler_is_final(tmp_path: Path) -> None:
    team = TeamHandler()
    team.status = 422
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site:
        answers = [site.hook({"id": "n-1"}), site.hook({"id": "n-1"})]

    assert [(answer.status, answer.problem) for answer in answers] == [(422, "recorded-failure")] * 2
    assert len(team.got) == 1


def test_a_handler_that_is_not_there_was_not_called(tmp_path: Path) -> None:
    """Nothing was sent, so that even an unrepeatable one may be tried again."""
    team = TeamHandler()
    with team.serving() as url:
        pass
    with Site(tmp_path, forwarding(url)).serving() as site:
        first, second = site.hook({"id": "n-1"}), site.hook({"id": "n-1"})

    assert [first.problem, second.problem] == ["handler-failed"] * 2


def test_a_handler_that_took_the_event_and_said_nothing_may_have_acted(tmp_path: Path) -> None:
    """So it is not called again unless it honours the key (A4)."""
    for number, (honours_key, calls) in enumerate(((None, 1), ("7d", 2))):
        team, folder = TeamHandler(), tmp_path / str(number)
        folder.mkdir()
        team.status = 0
        with (
            team.serving() as url,
            Site(folder, forwarding(url, honours_key=honours_key)).serving() as site,
        ):
            site.hook({"id": "n-1"})
            team.status = 200
            answer = site.hook({"id": "n-1"})

        assert answer.status == (202 if honours_key is None else 200)
        assert len(team.got) == calls


class Down(CrashPoints):
    """A ledger that cannot be written once it is down."""

    is_down = False

    def hit(self, name: str) -> None:
        if self.is_down and name == "commit.before":
            raise StoreUnavailable("down")


def test_without_the_ledger_it_is_503_and_the_handler_is_not_called(tmp_path: Path) -> None:
    """Never open when in doubt (I19); and not ready, so that others are asked."""
    team = TeamHandler()
    ledger = Down()
    gate = Gate(f"sqlite:///{tmp_path}/ledger.db", crashpoints=ledger)
    with team.serving() as url, Site(tmp_path, forwarding(url), gate).serving() as site:
        ledger.is_down = True
        answer, ready, alive = (
            site.hook({"id": "n-1"}),
            site.call("GET", "/readyz"),
            site.call("GET", "/livez"),
        )

    assert (answer.status, answer.problem) == (503, "store-unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert team.got == []
    assert (ready.status, alive.status) == (503, 200)


def test_without_the_ledger_only_what_is_settled_and_remembered_is_answered(tmp_path: Path) -> None:
    """As docs/service.md says; another content under the same key needs the ledger, to be kept (I7)."""
    team, ledger = TeamHandler(), Down()
    gate = Gate(f"sqlite:///{tmp_path}/ledger.db", crashpoints=ledger)
    with team.serving() as url, Site(tmp_path, forwarding(url), gate).serving() as site:
        site.hook({"id": "n-1"})
        ledger.is_down = True
        again, other = site.hook({"id": "n-1"}), site.hook({"id": "n-1", "box": "OTHER"})

    assert (again.status, again.document["replay"], other.status) == (200, True, 503)
    assert len(team.got) == 1


def test_an_event_without_its_key_field_waits_in_quarantine(site: Site) -> None:
    answer = site.hook({"box": "MSKU1"})

    assert (answer.status, answer.document["state"]) == (202, "quarantined")
    assert "id" in answer.document["reason"]


@pytest.mark.parametrize(
    ("time", "state"),
    [
        ("2020-01-01T00:00:00Z", "quarantined"),
        ("2026-01-01T00:00:00", "quarantined"),
        (None, "quarantined"),
    ],
)
def test_times_are_judged_strictly(tmp_path: Path, time: str | None, state: str) -> None:
    """Without an offset, or far from now, an event is not run (E2, E3)."""
    surface = msgspec.structs.replace(HOOKS, occurred_at="at")
    with Site(tmp_path, settings(surfaces={"hooks": surface})).serving() as site:
        answer = site.hook({"id": "n-1", "at": time})

    assert (answer.status, answer.document["state"]) == (202, "quarantined")


def _signed(secret: bytes, body: bytes, now: int, message_id: str = "msg_1") -> dict[str, str]:
    content = f"{message_id}.{now}.".encode() + body
    code = base64.b64encode(hmac.digest(secret, content, "sha256")).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": f"nonsense v1,!!! v1,{code}",
        "content-type": "application/json",
    }


def test_standard_webhooks_are_verified_on_the_raw_bytes(tmp_path: Path) -> None:
    """Before anything is parsed: a changed byte is 401, also where it would not be JSON."""
    key = b"k" * 32
    surface = msgspec.structs.replace(HOOKS, signature=SignatureScheme.STANDARD_WEBHOOKS)
    running = Site(tmp_path, settings(surfaces={"hooks": surface}))
    running.service._environment = {"HOOKS": "whsec_" + base64.b64encode(key).decode()}
    with running.serving() as site:
        now = site.gate.engine.clock.wall_ms() // 1000
        body = b'{"id": "n-1"}'

        def send(body: bytes, headers: dict[str, str]) -> Any:
            answer = site.call("POST", "/in/hooks", body, headers)
            return answer.status

        good = _signed(key, body, now)
        assert send(body, good) == 200
        assert send(body + b" ", good) == 401
        assert send(b"\xff not json", good) == 401
        assert send(body, _signed(key, body, now - 301)) == 401
        assert send(body, {**good, "webhook-timestamp": "now"}) == 400
        for missing in ("webhook-id", "webhook-timestamp", "webhook-signature"):
            assert send(body, {name: value for name, value in good.items() if name != missing}) == 400
        for bad_id in ("a.b", "x" * 256, "caf\u00e9"):
            assert send(body, {**good, "webhook-id": bad_id}) == 400
        not_json = b"\xff\xfe"
        assert send(not_json, _signed(key, not_json, now)) == 400
        svix = {name.replace("webhook-", "svix-"): value for name, value in good.items()}
        assert [send(body, svix), send(body + b" ", svix)] == [200, 401]


def test_github_signatures_are_verified(tmp_path: Path) -> None:
    surface = msgspec.structs.replace(HOOKS, signature=SignatureScheme.GITHUB)
    with Site(tmp_path, settings(surfaces={"hooks": surface})).serving() as site:
        body = b'{"id": "n-1"}'
        code = hmac.new(b"a-secret-of-sufficient-length", body, sha256).hexdigest()
        headers = {"x-hub-signature-256": f"sha256={code}", "content-type": "application/json"}

        assert site.call("POST", "/in/hooks", body, headers).status == 200
        assert site.call("POST", "/in/hooks", body + b"\n", headers).status == 401


def test_events_that_wait_for_a_person_are_bounded_with_429(site: Site) -> None:
    """Before the disk is full; repeats of what waits, and events that can run, go on (I18)."""
    site.gate.engine._context.parking = Parking(2)

    answers = [site.hook({"n": number}) for number in range(4)]

    assert [answer.status for answer in answers] == [202, 202, 429, 429]
    assert answers[3].headers["retry-after"] == "60"
    assert site.hook({"n": 1}).status == 202
    assert site.hook({"id": "n-1"}).status == 200
