"""Requests as they are sent: headers, bodies, the published verifier, and what is refused."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import BadHeader, BadOutgoing, Unacceptable
from oncegate.sender.headers import check_headers
from oncegate.sender.request_builder import (
    PAYLOAD_BYTES_MAX,
    BodyFormat,
    OutgoingRequest,
    build_request,
    check_outgoing,
    escaped,
    quoted,
)
from oncegate.signatures import Headers, HmacSecret, StandardWebhooks

SECRET = HmacSecret(b"s" * 32)
NOW = 1_700_000_000
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def event(**changes) -> OutgoingRequest:
    wanted = {
        "event_id": "evt_1",
        "key": "order-7",
        "seq": 3,
        "type": "order.updated",
        "payload": b'{"total":1.50}',
        "occurred_at_ms": NOW * 1000,
    }
    return OutgoingRequest(**{**wanted, **changes})


def headers_of(outgoing: OutgoingRequest, **options) -> dict[str, str]:
    return dict(build_request(outgoing, [SECRET], NOW, **options).headers)


def test_a_request_carries_id_key_seq_and_a_signature() -> None:
    request = build_request(event(), [SECRET], NOW)
    headers = dict(request.headers)

    assert headers["idempotency-key"] == '"evt_1"'
    assert headers["webhook-id"] == "evt_1"
    assert (headers["x-key"], headers["x-seq"], headers["x-previous-seq"]) == ("order-7", "3", "2")
    assert headers["content-type"] == "application/json"
    found = StandardWebhooks([SECRET]).verify(Headers(headers), request.body, NOW)
    assert found.message_id == "evt_1"


def test_the_standard_body_keeps_the_payload_as_it_is() -> None:
    body = build_request(event(), [SECRET], NOW).body
    assert b'"data":{"total":1.50}' in body
    assert msgspec.json.decode(body) == {
        "type": "order.updated",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "key": "order-7",
        "seq": 3,
        "previous_seq": 2,
        "data": {"total": 1.5},
    }


def test_a_cloudevent_is_in_structured_mode_with_key_and_padded_sequence() -> None:
    request = build_request(event(traceparent=TRACE), [SECRET], NOW, body_format=BodyFormat.CLOUDEVENTS)
    document = msgspec.json.decode(request.body)

    assert dict(request.headers)["content-type"].startswith("application/cloudevents+json")
    assert document == {
        "specversion": "1.0",
        "id": "evt_1",
        "source": "oncegate",
        "type": "order.updated",
        "time": "2023-11-14T22:13:20.000Z",
        "datacontenttype": "application/json",
        "partitionkey": "order-7",
        "sequence": "0000000000000000003",
        "previoussequence": "0000000000000000002",
        "traceparent": TRACE,
        "data": {"total": 1.5},
    }


@given(st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1))
def test_padded_sequences_sort_as_their_numbers(a: int, b: int) -> None:
    def text(seq: int) -> str:
        body = build_request(event(seq=seq), [SECRET], NOW, body_format=BodyFormat.CLOUDEVENTS).body
        return str(msgspec.json.decode(body)["sequence"])

    assert (text(a) < text(b)) is (a < b)


def test_a_raw_body_is_the_payload() -> None:
    assert build_request(event(), [SECRET], NOW, body_format=BodyFormat.RAW).body == b'{"total":1.50}'


def test_a_replay_differs_only_in_its_nonce_and_an_attempt_in_its_time() -> None:
    first, replayed = headers_of(event()), headers_of(event(), replay_nonce="n1")
    assert replayed == {**first, "x-replay": "n1"}
    later = dict(build_request(event(), [SECRET], NOW + 9).headers)
    changed = {name for name in first if first[name] != later[name]}
    assert changed == {"webhook-timestamp", "webhook-signature"}


def test_seqs_that_were_given_up_are_told() -> None:
    assert headers_of(event(seq=9, previous_seq=5))["x-previous-seq"] == "5"


def test_trace_and_correlation_are_passed_on() -> None:
    headers = headers_of(event(traceparent=TRACE, tracestate="a=1", correlation_id="c-1"))
    assert (headers["traceparent"], headers["tracestate"], headers["x-correlation-id"]) == (
        TRACE,
        "a=1",
        "c-1",
    )
    assert "traceparent" not in headers_of(event())


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=255))
def test_any_key_without_control_characters_travels_in_a_header(key: str) -> None:
    check_outgoing(event(key=key))
    shown = escaped(key)
    assert shown.isascii()
    assert shown.isprintable()
    assert " " not in shown
    assert unquote(shown, errors="strict") == key


def test_an_idempotency_key_is_a_structured_field_string() -> None:
    assert quoted('a"b\\c') == '"a\\"b\\\\c"'


@pytest.mark.parametrize(
    "changes",
    [
        {"event_id": ""},
        {"event_id": "a.b"},
        {"event_id": "a\nb"},
        {"event_id": "x" * 256},
        {"event_id": "\u00e9"},
        {"key": ""},
        {"key": "a\x00b"},
        {"key": "a\r\nb"},
        {"key": "a\x85b"},
        {"key": "\ud800"},
        {"key": "k" * 256},
        {"seq": 0},
        {"seq": -1},
        {"seq": 2**63},
        {"previous_seq": 3},
        {"previous_seq": -1},
        {"type": ""},
        {"type": "a\nb"},
        {"type": "t" * 121},
        {"payload": b"x" * (PAYLOAD_BYTES_MAX + 1)},
        {"traceparent": "00-abc"},
        {"traceparent": "00-" + "0" * 32 + "-b7ad6b7169203331-01"},
        {"traceparent": TRACE + "\n"},
        {"tracestate": "a\r\nb"},
        {"correlation_id": "c\x00"},
        {"correlation_id": ""},
        {"correlation_id": " c"},
        {"source": "s\n"},
    ],
)
def test_an_event_that_cannot_be_sent_is_refused(changes) -> None:
    with pytest.raises(BadOutgoing) as refused:
        check_outgoing(event(**changes))
    assert refused.value.status == 422


def test_headers_of_ones_own_are_sent() -> None:
    own = check_headers({"Authorization": "Bearer abc", "X-Env": "", "x-tab": "a\tb"})
    headers = headers_of(event(), own_headers=own)
    assert (headers["authorization"], headers["x-env"]) == ("Bearer abc", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-a", "a\r\nb: c"),
        ("x-a", "a\n"),
        ("x-a", "a\x00"),
        ("x-a", "\x1b[31m"),
        ("x-a", " a"),
        ("x-a", "a "),
        ("x-a", "\u00e9"),
        ("x-a", "v" * 4097),
        ("", "a"),
        ("x a", "a"),
        ("x:a", "a"),
        ("x\n", "a"),
        ("\u00e9", "a"),
        ("n" * 65, "a"),
        ("Host", "a"),
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("connection", "close"),
        ("Webhook-Id", "a"),
        ("Idempotency-Key", "a"),
        ("X-Key", "a"),
        ("x-SEQ", "1"),
        ("Proxy-Authorization", "a"),
        ("content-type", "text/plain"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadHeader) as refused:
        check_headers({name: value})
    assert isinstance(refused.value, Unacceptable)
    assert "\x1b" not in str(refused.value)


def test_too_many_or_repeated_headers_are_refused() -> None:
    with pytest.raises(BadHeader, match="at most"):
        check_headers({f"x-{number}": "a" for number in range(33)})
    with pytest.raises(BadHeader, match="twice"):
        check_headers({"X-A": "1", "x-a": "2"})


def test_a_refused_header_value_is_not_shown() -> None:
    with pytest.raises(BadHeader) as refused:
        check_headers({"authorization": "Bearer canary\n"})
    assert "canary" not in str(refused.value)
