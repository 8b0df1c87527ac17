"""The planner/executor contract over HTTP (C1-C5, I8, I13)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate.service.settings import ContractSettings, DownstreamSettings, Settings
from tests.service.site import Site, TeamHandler, settings

V7 = "0190b3f0-7c1e-7abc-8def-0123456789ab"
V4 = "8e03978e-40d5-43dd-bc93-6894a57f9324"


def publish(site: Site, *ids: str, token: str | None = None) -> None:
    for event_id in ids:
        body = {"id": event_id, "key": "wh-7", "data": {"task": event_id}}
        assert site.partner("POST", "/v1/events", body, token).status == 200


def ids(document: Any) -> list[str]:
    return [event["id"] for event in document["events"]]


@pytest.mark.parametrize("correlation_id", [V4, V7])
def test_a_realtime_call_again_is_a_replay(site: Site, correlation_id: str) -> None:
    """200 with replay: true, whatever the case of the id, and nothing is changed."""
    body = {"correlation_id": correlation_id, "event": "picked"}

    first = site.partner("POST", "/wes/v1/realtime", body)
    second = site.partner("POST", "/wes/v1/realtime", body)

    assert (first.status, first.document["replay"]) == (200, False)
    assert (second.status, second.document["replay"]) == (200, True)


@pytest.mark.parametrize(
    "correlation_id",
    [None, 7, "", "x", V4[:-1], V4.replace("-", ""), f"{{{V4}}}", "urn:uuid:" + V4,
     "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-0000-0000-0000-000000000000"],
)  # fmt: skip
def test_an_id_that_is_no_uuid_of_version_4_or_7_is_400(shared: Site, correlation_id: Any) -> None:
    answer = shared.partner("POST", "/wes/v1/realtime", {"correlation_id": correlation_id})

    assert (answer.status, answer.problem) == (400, "malformed")


def test_partners_never_meet(site: Site) -> None:
    """The same id of another partner is as if it had never been seen."""
    body = {"correlation_id": V7, "event": "picked"}
    site.partner("POST", "/wes/v1/realtime", body)

    other = site.partner("POST", "/wes/v1/realtime", body, site.other)

    assert other.document["replay"] is False


def test_the_token_says_who_calls_and_not_the_body(site: Site) -> None:
    mine = site.partner("POST", "/wes/v1/realtime", {"correlation_id": V4, "partner_id": "exec-1"})
    others = site.partner("POST", "/wes/v1/realtime", {"correlation_id": V7, "partner_id": "exec-9"})

    assert mine.status == 200
    assert (others.status, others.problem) == (403, "forbidden")


def test_confirmations_of_one_window_are_brought_on_once(tmp_path: Path) -> None:
    """Whatever ids they carry; another content for the window is refused."""
    team = TeamHandler()
    with team.serving() as url, Site(tmp_path, confirming(url)).serving() as site:
        answers = [
            site.partner("POST", "/wes/v1/confirmations", {"correlation_id": one, "window": "w-1", "n": n})
            for one, n in ((V4, 1), (V4, 1), (V7, 1), (V7[:-1] + "c", 2))
        ]
        no_window = site.partner("POST", "/wes/v1/confirmations", {"correlation_id": V4})

    assert [answer.status for answer in answers] == [200, 200, 200, 422]
    assert [answer.document["replay"] for answer in answers[:3]] == [False, True, False]
    assert [answer.document["outcome"]["window_seen"] for answer in answers[:3]] == [False, False, True]
    assert len(team.got) == 1
    assert no_window.status == 400


def confirming(url: str) -> Settings:
    """Settings that bring confirmations to a handler."""
    return settings(
        downstreams={"team": DownstreamSettings(url=url, honours_key="7d")},
        contract=ContractSettings(confirmations_forward="team"),
    )


def test_the_context_of_a_confirmation_goes_on_to_the_handler(tmp_path: Path) -> None:
    """D9: also through the window's own entry, which is of the same trace; without one there is none."""
    team, trace = TeamHandler(), "0af7651916cd43dd8448eb211c80319c"
    given = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "tracestate": "a=1"}
    with team.serving() as url, Site(tmp_path, confirming(url)).serving() as site:
        headers = {"authorization": f"Bearer {site.token}", "content-type": "application/json"}
        for window, carried in (("w-1", given), ("w-2", {})):
            body = {"correlation_id": V4[:-1] + window[-1], "window": window}
            assert site.call("POST", "/wes/v1/confirmations", body, {**headers, **carried}).status == 200
        with site.gate.engine.store.look() as session:
            linked = session.linked(trace, 10)

    first, second = team.headers
    assert {name: first.get(name) for name in given} == given
    assert not {*given, "x-correlation-id"} & set(second)
    assert len(linked) == 2


@pytest.mark.parametrize("path", ["realtime", "confirmations"])
def test_the_case_of_an_id_is_no_other_content(site: Site, path: str) -> None:
    bodies = [{"correlation_id": one, "window": "w-1", "n": 1} for one in (V4, V4.upper(), V4.title())]
    answers = [site.partner("POST", f"/wes/v1/{path}", body) for body in (*bodies, {**bodies[1], "n": 2})]

    assert [answer.status for answer in answers] == [200, 200, 200, 422]
    assert [answer.document["replay"] for answer in answers[:3]] == [False, True, True]


@pytest.mark.parametrize(
    "window",
    [" ", " w", "w ", "", "w\n", "w" * 121, "\u200bw", "a\u202eb", "\ud800", 7, None, ["w"], {"w": 1}],
)
def test_a_window_that_could_be_no_key_is_400_and_not_kept_for_anybody(shared: Site, window: Any) -> None:
    answer = shared.partner("POST", "/wes/v1/confirmations", {"correlation_id": V7, "window": window})

    assert (answer.status, answer.problem) == (400, "malformed")


def test_events_are_polled_and_acknowledged(site: Site) -> None:
    publish(site, "1", "2", "3")
    pending = "/wes/v1/dispatch/pending"

    first = site.partner("GET", f"{pending}?limit=2").document
    second = site.partner("GET", f"{pending}?since={first['next_cursor']}&limit=2").document
    acks = [
        site.partner("POST", "/wes/v1/dispatch/ack", {"cursor": cursor}).document
        for cursor in (second["next_cursor"], first["next_cursor"], second["next_cursor"])
    ]

    assert (ids(first), first["has_more"], ids(second), second["has_more"]) == (
        ["1", "2"],
        True,
        ["3"],
        False,
    )
    assert [ack["replay"] for ack in acks] == [False, True, True]
    assert {ack["cursor"] for ack in acks} == {second["next_cursor"]}
    assert ids(site.partner("GET", pending).document) == []
    assert [event["seq"] for event in first["events"]] == [1, 2]


def test_a_new_executor_polls_with_an_empty_cursor(site: Site) -> None:
    """The contract's own first request: from where this reader stands, which is the beginning."""
    publish(site, "1", "2")
    first = site.partner("GET", "/wes/v1/dispatch/pending?since=&limit=100")
    assert (first.status, ids(first.document)) == (200, ["1", "2"])
    site.partner("POST", "/wes/v1/dispatch/ack", {"cursor": first.document["next_cursor"]})
    assert ids(site.partner("GET", "/wes/v1/dispatch/pending?since=&limit=100").document) == []


def test_a_poll_waits_for_the_next_event(site: Site) -> None:
    """And is woken by it."""
    timer = threading.Timer(0.2, publish, (site, "late"))
    timer.start()

    answer = site.partner("GET", "/wes/v1/dispatch/pending?wait=20")

    timer.join()
    assert ids(answer.document) == ["late"]


@pytest.mark.parametrize(
    "query",
    ["since=0", "since=AQAAAAAAAAABsFwpMN9LMk50SJM9fssV_A", "limit=0", "limit=1001", "limit=x",
     "limit=-1", "wait=31", "limit=1&limit=2", "other=1", "since=%FF", "limit=%D9%A3"],
)  # fmt: skip
def test_queries_are_read_strictly(shared: Site, query: str) -> None:
    publish(shared, "1")

    answer = shared.partner("GET", f"/wes/v1/dispatch/pending?{query}")

    assert answer.status == 400
    assert answer.problem in ("malformed", "cursor-refused")


def test_another_tenants_cursor_is_refused_like_a_forged_one(site: Site) -> None:
    """Status, body and headers are the same (I8, I13)."""
    publish(site, "1")
    publish(site, "secret", token=site.other)
    theirs = site.partner("GET", "/wes/v1/dispatch/pending", token=site.other).document["next_cursor"]
    forged = ("B" if theirs[-1] != "B" else "A").join([theirs[:-1], ""])

    answers = [
        site.partner("GET", f"/wes/v1/dispatch/pending?since={cursor}") for cursor in (theirs, forged)
    ]
    answers += [
        site.partner("POST", "/wes/v1/dispatch/ack", {"cursor": cursor}) for cursor in (theirs, forged)
    ]

    assert {answer.status for answer in answers} == {400}
    assert len({answer.body for answer in answers}) == 1
    names = [sorted(set(answer.headers) - {"date"}) for answer in answers]
    assert all(one == names[0] for one in names)


def test_the_context_of_a_publishing_request_is_in_the_feed(site: Site) -> None:
    """D9: its correlation id and traceparent go on to whoever polls; without them there is nothing."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for name, given in (("1", {"x-correlation-id": "trip 7", "traceparent": parent}), ("2", {})):
        body = {"id": name, "key": "wh-7", "data": 1}
        headers = {**given, "authorization": f"Bearer {site.token}", "content-type": "application/json"}
        assert site.call("POST", "/v1/events", body, headers).status == 200

    first, second = site.partner("GET", "/wes/v1/dispatch/pending").document["events"]

    assert (first["correlation_id"], first["traceparent"]) == ("trip 7", parent)
    assert not {"correlation_id", "traceparent", "tracestate"} & set(second)


def test_publishing_again_is_a_replay_and_other_content_a_conflict(site: Site) -> None:
    body = {"id": "1", "key": "wh-7", "data": {"a": 1}}
    answers = [
        site.partner("POST", "/v1/events", one)
        for one in (body, body, {**body, "data": 2}, {**body, "x": 1})
    ]

    assert [answer.status for answer in answers] == [200, 200, 422, 400]
    assert [answer.document["replay"] for answer in answers[:2]] == [False, True]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/wes/v1/realtime"),
        ("POST", "/wes/v1/confirmations"),
        ("GET", "/wes/v1/dispatch/pending"),
        ("POST", "/wes/v1/dispatch/ack"),
        ("POST", "/v1/events"),
        ("GET", "/v1/events/e-1"),
    ],
)
def test_nobody_comes_in_without_a_good_token(site: Site, method: str, path: str) -> None:
    """A wrong one, none, a hash of one, or one that was revoked."""
    hashes = site.book.partners["exec-1"].tokens
    for given in ("wrong", "", hashes[0]):
        assert site.partner(method, path, {}, given or " ").status == 401
    assert site.call(method, path, b"{}").status == 401
    site.book.revoke("exec-1")
    assert site.partner(method, path, {}).status == 401


def test_a_partner_does_what_its_roles_say(site: Site) -> None:
    from oncegate.service.partners import PartnerRole

    token = site.book.add("reader", "acme", [PartnerRole.READ])

    assert site.partner("GET", "/wes/v1/dispatch/pending", token=token).status == 200
    refused = site.partner("POST", "/v1/events", {"id": "1", "key": "k", "data": 1}, token)
    assert (refused.status, refused.problem) == (403, "forbidden")


def test_a_rotated_token_works_beside_the_one_before(site: Site) -> None:
    """Until the next rotation."""
    old, new = site.token, site.book.rotate("exec-1")
    statuses = [site.partner("GET", "/wes/v1/dispatch/pending", token=one).status for one in (old, new)]
    newest = site.book.rotate("exec-1")
    statuses += [
        site.partner("GET", "/wes/v1/dispatch/pending", token=one).status for one in (old, new, newest)
    ]

    assert statuses == [200, 200, 401, 200, 200]


def test_the_prefix_is_a_setting(tmp_path: Path) -> None:
    moved = msgspec.structs.replace(ContractSettings(), prefix="/planner")
    with Site(tmp_path, settings(contract=moved)).serving() as site:
        assert site.partner("GET", "/planner/dispatch/pending").status == 200
        assert site.partner("GET", "/wes/v1/dispatch/pending").status == 404
