"""The receiver: checked, once, in order, across crashes and processes (B7)."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from oncegate import ClaimLost, ConfigError, Failed, NotApplied
from oncegate.errors import BadOutgoing, EventNotStorable
from oncegate.feed import Feed
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.limits import CARRIED_DEPTH_MAX, DIGITS_MAX
from oncegate.receiver import Gap, Receiver
from oncegate.sender.emission import Emission, outgoing_of
from oncegate.sender.request_builder import PAYLOAD_BYTES_MAX, BodyFormat, Request
from oncegate.signatures import BearerToken, GithubSignature, StripeSignature
from oncegate.testing import CrashReached
from tests.receiver.requests import SECRET, Inbox, document
from tests.support.gates import DeadAfter, Ledger


@pytest.mark.parametrize("body_format", list(BodyFormat))
def test_events_are_applied_in_order_and_repeats_only_acknowledged(ledger: Ledger, body_format) -> None:
    inbox = Inbox(ledger)
    for seq in (1, 2, 3):
        assert inbox.send(seq, body_format=body_format) == 200
    again = inbox.receive(inbox.request(2, body_format=body_format))

    assert (again.status, document(again).pop("replay")) == (200, True)
    assert inbox.applied == [("k", 1), ("k", 2), ("k", 3)]


def test_a_seq_is_refused_until_the_one_before_it_was_applied(ledger: Ledger) -> None:
    inbox = Inbox(ledger)
    early = inbox.receive(inbox.request(2))
    assert early.status == 425
    assert dict(early.headers)["retry-after"] == "1"
    assert document(early) == {"error": "too early", "expected": 1, "got": 2}
    assert ledger.states() == []

    assert [inbox.send(seq) for seq in (1, 3, 2, 3)] == [200, 425, 200, 200]
    assert inbox.applied == [("k", 1), ("k", 2), ("k", 3)]


def test_lanes_do_not_wait_for_one_another(ledger: Ledger) -> None:
    inbox = Inbox(ledger)
    assert inbox.send(2, "stuck") == 425
    assert inbox.send(1, "free") == 200


def test_another_process_goes_on_where_the_first_one_stopped(ledger: Ledger) -> None:
    first, second = Inbox(ledger), Inbox(ledger)
    assert first.send(1) == 200
    assert [second.send(seq) for seq in (3, 2)] == [425, 200]
    assert first.send(3) == 200
    assert second.send(1) == 200
    assert (first.applied, second.applied) == ([("k", 1), ("k", 3)], [("k", 2)])


def test_a_failed_event_holds_its_lane_and_is_taken_up_when_it_comes_again(ledger: Ledger) -> None:
    inbox = Inbox(ledger)
    inbox.trouble = NotApplied("not now")
    assert inbox.send(1) == 503
    assert inbox.send(2) == 425
    inbox.trouble = None
    assert [inbox.send(1), inbox.send(2)] == [200, 200]
    assert inbox.applied == [("k", 1), ("k", 2)]


def test_a_final_failure_does_not_move_the_lane(ledger: Ledger) -> None:
    """The sender decides what follows: it blocks, or goes on and says what it gave up."""
    inbox = Inbox(ledger)
    inbox.trouble = Failed("never")
    assert [inbox.send(1), inbox.send(1)] == [422, 422]
    inbox.trouble = None
    assert inbox.send(2) == 425
    assert inbox.send(2, previous=0) == 200
    assert inbox.applied == [("k", 2)]


def test_what_the_sender_gave_up_is_passed_over_and_reported(ledger: Ledger, caplog) -> None:
    """To the log, the program, the sender and in the ledger; once, when the next event was applied."""
    gaps: list[Gap] = []
    inbox = Inbox(ledger, on_gap=gaps.append)
    inbox.send(1)
    inbox.trouble = NotApplied("not now")
    inbox.send(5, previous=1)
    assert (gaps, "will not come" in caplog.text) == ([], False)
    inbox.trouble = None
    answer = inbox.receive(inbox.request(5, previous=1))
    assert (answer.status, document(answer)) == (200, {"replay": False, "passed_over": [2, 4]})
    assert gaps == [Gap("k", 2, 4)]
    assert "seq 2 to 4 will not come" in caplog.text
    assert ledger.rows("SELECT seq, missed FROM oncegate_position") == [(5, 3)]
    assert document(inbox.receive(inbox.request(5, previous=1)))["replay"] is True
    assert len(gaps) == 1


def test_a_program_that_fails_to_take_note_of_a_gap_changes_nothing(ledger: Ledger, caplog) -> None:
    def fails(gap: Gap) -> None:
        raise RuntimeError("no room")

    inbox = Inbox(ledger, on_gap=fails)
    assert inbox.send(3, previous=0) == 200
    assert inbox.applied == [("k", 3)]
    assert "on_gap failed" in caplog.text


def test_an_event_that_its_lane_went_on_without_is_refused(ledger: Ledger) -> None:
    inbox = Inbox(ledger)
    inbox.send(3, previous=0)
    late = inbox.receive(inbox.request(2))
    assert (late.status, document(late)["position"]) == (409, 3)
    assert inbox.applied == [("k", 3)]


def test_an_event_that_failed_before_its_lane_went_on_is_not_run_behind_it(ledger: Ledger) -> None:
    inbox = Inbox(ledger)
    inbox.trouble = NotApplied("not now")
    inbox.send(1)
    inbox.trouble = None
    inbox.send(2, previous=0)
    assert inbox.send(1) == 409
    ledger.lapse()
    Reconciler(inbox.gate).run_once()
    assert inbox.applied == [("k", 2)]


def test_a_late_event_runs_where_that_is_allowed_and_the_lane_does_not_go_back(ledger: Ledger) -> None:
    inbox = Inbox(ledger, accept_late=True)
    inbox.send(3, previous=0)
    assert [inbox.send(2), inbox.send(2)] == [200, 200]
    assert ledger.rows("SELECT seq FROM oncegate_position") == [(3,)]
    assert inbox.send(4) == 200
    assert inbox.applied == [("k", 3), ("k", 2), ("k", 4)]


def test_another_event_with_a_used_seq_is_refused(ledger: Ledger) -> None:
    inbox = Inbox(ledger)
    inbox.send(1)
    assert inbox.send(1, event_id="another") == 409
    assert inbox.send(2, event_id="k-1") == 422
    assert inbox.applied == [("k", 1)]


def test_a_lane_may_begin_anywhere_where_that_is_allowed(ledger: Ledger) -> None:
    """What was before is not known to have been given up, and is no gap."""
    gaps: list[Gap] = []
    inbox = Inbox(ledger, join_late=True, on_gap=gaps.append)
    assert [inbox.send(57), inbox.send(59), inbox.send(58)] == [200, 425, 200]
    assert gaps == []


@pytest.mark.parametrize("point", ["reserve.before", "reserve.after", "settle.before", "commit.before"])
def test_after_a_crash_before_the_outcome_nothing_passes_the_event(ledger: Ledger, point: str) -> None:
    """Given a process that dies with seq 1 unfinished; then 2 waits until 1 is finished, by whomever."""
    with pytest.raises(CrashReached):
        Inbox(ledger, ledger.gate(DeadAfter(point))).send(1)
    survivor = Inbox(ledger)
    assert survivor.send(2) == 425
    ledger.lapse()
    Reconciler(survivor.gate).run_once()
    assert [survivor.send(1), survivor.send(2)] == [200, 200]
    assert [seq for _, seq in survivor.applied] == [1, 2]


def test_after_a_crash_behind_the_outcome_the_lane_has_moved(ledger: Ledger) -> None:
    dying = Inbox(ledger, ledger.gate(DeadAfter("settle.after")))
    with pytest.raises(CrashReached):
        dying.send(1)
    survivor = Inbox(ledger)
    assert [survivor.send(2), survivor.send(1)] == [200, 200]
    assert (dying.applied, survivor.applied) == ([("k", 1)], [("k", 2)])


def test_the_reconciler_moves_the_lane_when_it_finishes_an_event(ledger: Ledger) -> None:
    with pytest.raises(CrashReached):
        Inbox(ledger, ledger.gate(DeadAfter("settle.before"))).send(1)
    survivor = Inbox(ledger)
    ledger.lapse()
    Reconciler(survivor.gate).run_once()
    assert survivor.applied == [("k", 1)]
    assert survivor.send(2) == 200


def test_an_event_that_waits_for_a_person_is_not_acknowledged_in_a_lane(ledger: Ledger) -> None:
    gate = ledger.gate()
    receiver = Receiver(gate, "orders", secrets=[SECRET.reveal()], sender="acme")
    receiver.handler(key="{payload.data.missing}")(lambda event: None)
    request = Inbox(ledger).request(1)
    found = receiver.receive_sync(request.headers, request.body)
    assert (found.status, document(found)["waits"]) == (423, "quarantine")
    assert dict(found.headers)["retry-after"] == "60"


@pytest.mark.parametrize(
    ("trouble", "status"), [(NotApplied("not now"), 503), (ClaimLost("gone"), 409), (ValueError("x"), 500)]
)
def test_trouble_with_one_event_does_not_ask_for_time_for_all(
    ledger: Ledger, trouble: Exception, status: int
) -> None:
    """503 with Retry-After makes senders leave the whole endpoint alone: only the ledger's absence does."""
    inbox = Inbox(ledger)
    inbox.trouble = trouble
    found = inbox.receive(inbox.request(1))
    asks_for_time = found.status in (429, 503) and "retry-after" in dict(found.headers)
    assert (found.status, asks_for_time) == (status, False)


def changed(request: Request, **changes: str | None) -> Request:
    """A request with headers replaced, or taken away."""
    names = {name.replace("_", "-"): value for name, value in changes.items()}
    kept = [(name, value) for name, value in request.headers if name not in names]
    return Request(
        (*kept, *((name, value) for name, value in names.items() if value is not None)), request.body
    )


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"webhook_id": None}, 400),
        ({"webhook_signature": "v1,AAAA"}, 401),
        ({"webhook_timestamp": "1"}, 401),
        ({"webhook_id": "another"}, 401),
        ({"content_encoding": "gzip"}, 415),
        ({"x_seq": "7"}, 400),
        ({"x_key": "another"}, 400),
        ({"x_key": "%ff"}, 400),
    ],
)
def test_a_request_that_is_not_right_is_refused_and_nothing_is_recorded(ledger, changes, status) -> None:
    inbox = Inbox(ledger)
    assert inbox.receive(changed(inbox.request(1), **changes)).status == status
    assert inbox.applied == []
    assert inbox.send(1) == 200
    assert ledger.states() == ["committed"]


def test_headers_cannot_change_the_order_that_was_signed(ledger: Ledger) -> None:
    inbox = Inbox(ledger)
    assert inbox.receive(changed(inbox.request(3), x_previous_seq="0")).status == 425
    assert inbox.receive(changed(inbox.request(1), x_key=None, x_seq=None)).status == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"x_seq": None},
        {"x_key": None},
        {"x_seq": "0"},
        {"x_seq": "-1"},
        {"x_seq": "x"},
        {"x_previous_seq": "9"},
    ],
)
def test_an_ordered_event_needs_a_readable_place(ledger: Ledger, changes) -> None:
    inbox = Inbox(ledger)
    request = changed(inbox.request(1, body_format=BodyFormat.RAW), **changes)
    assert inbox.receive(request).status == 400


def test_a_body_over_the_limit_is_refused_before_anything_else(ledger: Ledger) -> None:
    found = Inbox(ledger).receive(Request((), b"x" * (1024 * 1024 + 1)))
    assert found.status == 413


def test_an_error_of_the_handler_is_logged_and_not_shown(ledger: Ledger, caplog) -> None:
    inbox = Inbox(ledger)
    inbox.trouble = ValueError("canary")
    found = inbox.receive(inbox.request(1))
    assert found.status == 500
    assert b"canary" not in found.body
    assert "canary" in caplog.text


def test_another_sender_has_lanes_and_ids_of_its_own(ledger: Ledger) -> None:
    gate = ledger.gate()
    applied = []
    for name in ("a", "b"):
        receiver = Receiver(gate, f"orders-{name}", secrets=[SECRET.reveal()], sender=name)
        receiver.handler()(lambda event, once: applied.append(event["seq"]))
        request = Inbox(ledger).request(1)
        assert receiver.receive_sync(request.headers, request.body).status == 200
    assert applied == [1, 1]


def test_without_order_no_key_or_seq_is_needed(ledger: Ledger) -> None:
    gate = ledger.gate()
    applied = []
    token = "a-token-of-some-length"
    receiver = Receiver(gate, "hooks", scheme=BearerToken([token]), ordered=False)
    receiver.handler(key="{payload.n}")(lambda event, once: applied.append(event))
    headers = {"authorization": f"Bearer {token}", "Idempotency-Key": '"evt-1"'}
    assert [receiver.receive_sync(headers, b'{"n":1,"a":1}').status for _ in range(2)] == [200, 200]
    assert receiver.receive_sync(headers, b'{"n":1,"a":2}').status == 422
    assert applied == [{"payload": {"n": 1, "a": 1}}]
    assert receiver.receive_sync({"authorization": f"Bearer {token}"}, b"{}").status == 202


SCHEMES = [GithubSignature(["x" * 16]), StripeSignature(["x" * 16]), BearerToken(["x" * 16])]


@pytest.mark.parametrize("key", ["{id}", "{id}:{payload.n}"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)
def test_a_key_from_an_id_that_nobody_signs_is_refused_at_registration(
    ledger: Ledger, scheme: Any, key: str
) -> None:
    receiver = Receiver(ledger.gate(), "hooks", scheme=scheme, ordered=False)
    with pytest.raises(ConfigError, match=r'signs no id.*key="\{payload\.id\}"'):
        receiver.handler(key=key)(lambda event, once: None)


def test_one_recorded_request_under_five_ids_is_one_effect(ledger: Ledger) -> None:
    """Nothing but the body is signed: who recorded a request can write any header (I1)."""
    receiver = Receiver(ledger.gate(), "hooks", scheme=GithubSignature(["x" * 16]), ordered=False)
    applied: list[Any] = []
    receiver.handler(key="{payload.id}")(lambda event, once: applied.append(event))
    body = b'{"id":"evt-1"}'
    signature = "sha256=" + hmac.new(b"x" * 16, body, "sha256").hexdigest()

    for number in range(5):
        headers = {"x-hub-signature-256": signature, "idempotency-key": f'"other-{number}"'}
        assert receiver.receive_sync(headers, body).status == 200

    assert applied == [{"payload": {"id": "evt-1"}}]


def test_a_receiver_answers_429_where_too_many_events_wait_for_a_person(ledger: Ledger) -> None:
    gate = ledger.gate(parked_max=1)
    receiver = Receiver(gate, "hooks", scheme=BearerToken(["x" * 16]), ordered=False)
    receiver.handler(key="{payload.n}")(lambda event, once: None)
    headers = {"authorization": "Bearer " + "x" * 16}

    first, second = (receiver.receive_sync(headers, b'{"a":%d}' % n) for n in (1, 2))

    assert (first.status, second.status, dict(second.headers)["retry-after"]) == (202, 429, "60")


RAW = BodyFormat.RAW


def test_headers_alone_cannot_end_a_lane(ledger: Ledger) -> None:
    """Those of a raw body are not signed: a gap in them is too early, not passed over."""
    inbox = Inbox(ledger)
    assert inbox.send(1, body_format=RAW) == 200
    far = changed(inbox.request(2, body_format=RAW), x_seq=str(2**63 - 1), x_previous_seq="1")

    assert inbox.receive(far).status == 425
    assert [inbox.send(seq, body_format=RAW) for seq in (2, 3)] == [200, 200]


def test_headers_alone_cannot_say_where_a_lane_begins(ledger: Ledger) -> None:
    inbox = Inbox(ledger, join_late=True)
    far = changed(inbox.request(1, body_format=RAW), x_seq=str(2**63 - 1))

    assert inbox.receive(far).status == 425
    assert inbox.send(1, body_format=RAW) == 200


def test_order_headers_count_where_they_are_trusted(ledger: Ledger) -> None:
    inbox = Inbox(ledger, trust_order_headers=True)
    assert inbox.send(1, body_format=RAW) == 200
    assert inbox.send(4, previous=1, body_format=RAW) == 200


def test_a_key_from_a_place_that_nobody_signs_is_refused(ledger: Ledger) -> None:
    """One recorded request under other x-key headers would be one effect for each."""
    inbox = Inbox(ledger)
    receiver = Receiver(inbox.gate, "places", secrets=[SECRET.reveal()])
    applied: list[Any] = []
    receiver.handler(key="{key}:{seq}")(lambda event, once: applied.append(event))
    raw, whole = inbox.request(1, body_format=RAW), inbox.request(1)

    assert receiver.receive_sync(raw.headers, raw.body).status == 400
    assert receiver.receive_sync(whole.headers, whole.body).status == 200
    assert len(applied) == 1


@pytest.mark.parametrize("options", [{}, {"secrets": ["whsec_x"], "scheme": GithubSignature(["x" * 16])}])
def test_a_receiver_is_given_secrets_or_a_scheme(ledger: Ledger, options) -> None:
    with pytest.raises(ConfigError, match="either"):
        Receiver(ledger.gate(), "orders", **options)


@pytest.mark.parametrize("body_format", list(BodyFormat))
def test_the_largest_event_that_can_be_emitted_can_be_received(
    ledger: Ledger, body_format: BodyFormat
) -> None:
    """With the longest key and id around it."""
    inbox, name = Inbox(ledger), "\N{GRINNING FACE}" * 255
    payload = b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"'
    request = inbox.request(1, name, event_id="i" * 255, payload=payload, body_format=body_format)
    assert inbox.receive(request).status == 200
    assert inbox.applied == [(name, 1)]


def deep(levels: int) -> Any:
    """A list in a list, so many of them."""
    found: Any = []
    for _ in range(levels - 1):
        found = [found]
    return found


@pytest.mark.parametrize("body_format", list(BodyFormat))
def test_the_deepest_event_and_the_largest_integer_that_can_be_emitted_can_be_received(
    ledger: Ledger, body_format: BodyFormat
) -> None:
    """One limit for those who send and those who receive; every digit arrives."""
    inbox, clock = Inbox(ledger), ledger.clock
    for seq, payload in enumerate((deep(CARRIED_DEPTH_MAX), [-(10**DIGITS_MAX) + 1, 2**64]), 1):
        given = Emission(endpoint="e", key="k", type="t", payload=payload, event_id=f"n-{seq}")
        body = outgoing_of(given, clock, 10).payload
        answer = inbox.receive(inbox.request(seq, "k", payload=body, body_format=body_format))
        assert answer.status == 200, answer.body
    with ledger.gate().engine.store.look() as session:
        stored = session.detail(2)
    assert stored is not None
    assert b"[-%s,18446744073709551616]" % (b"9" * DIGITS_MAX) in (stored.body or b"")


@pytest.mark.parametrize(
    ("payload", "why"), [(deep(CARRIED_DEPTH_MAX + 1), "nested"), ({"n": 10**DIGITS_MAX}, "digits")]
)
def test_what_no_receiver_would_take_is_not_emitted_or_published(
    ledger: Ledger, payload: Any, why: str
) -> None:
    with pytest.raises(BadOutgoing, match=why):
        outgoing_of(Emission(endpoint="e", key="k", type="t", payload=payload), ledger.clock, 10)
    with pytest.raises(EventNotStorable, match=why):
        Feed(ledger.gate()).publish_sync(event_id="e", key="k", data=payload)
    # Digits in a text are no number, and brackets in one no depth
    text = {"n": "9" * 99 + "[" * 99}
    assert outgoing_of(Emission(endpoint="e", key="k", type="t", payload=text), ledger.clock, 10).payload
