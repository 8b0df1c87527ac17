"""Key templates: what may be declared, what is read from an event, and what is refused and why."""

from __future__ import annotations

import enum
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncegate.errors import BadTemplate, InputRefused
from oncegate.model.template import (
    FIELDS_MAX,
    LABEL_LENGTH_MAX,
    TEMPLATE_LENGTH_MAX,
    KeyParts,
    KeyTemplate,
)
from tests.support.properties import tried

bounded = tried(80)

REASONS = {
    "missing",
    "null",
    "empty",
    "not_scalar",
    "wrong_type",
    "too_long",
    "control_character",
    "padded",
    "not_an_object",
    "lone_surrogate",
}
TYPES = ["str", "int", "uuid", "date", "timestamp", "bool"]


def read(template: str, payload: object) -> KeyParts:
    return KeyTemplate.parse(template).derive(payload)


def refusal(template: str, payload: object) -> InputRefused:
    with pytest.raises(InputRefused) as refused:
        read(template, payload)
    return refused.value


def parts_or_reason(template: str, payload: object) -> tuple[str, ...] | str:
    try:
        return read(template, payload).parts
    except InputRefused as refused:
        return refused.reason


def test_declared_fields_are_read_in_order() -> None:
    """The parts are the fields' values, the label is the template filled in."""
    event = {"shipment_id": "SHP-1", "milestone": "GATE_OUT", "effective_date": "2024-05-31"}
    derived = read("shipment-milestone:{shipment_id}:{milestone}:{effective_date:date}", event)
    assert derived.parts == ("SHP-1", "GATE_OUT", "2024-05-31")
    assert derived.label == "shipment-milestone:SHP-1:GATE_OUT:2024-05-31"


@pytest.mark.parametrize(
    ("template", "payload"),
    [
        ("{data.object.id}", {"data": {"object": {"id": "x"}}}),
        ("{items.0.id}", {"items": [{"id": "x"}, {"id": "y"}]}),
        ("{@id}", {"@id": "x"}),
        ("{ship-ref}", {"ship-ref": "x"}),
        ("{größe}", {"größe": "x"}),
        ("{id}", MappingProxyType({"id": "x"})),
    ],
)
def test_paths_lead_into_mappings_and_lists(template: str, payload: object) -> None:
    """Nested names, indexes and the odd characters that real events use are reachable."""
    assert read(template, payload).parts == ("x",)


def test_doubled_braces_are_literal() -> None:
    """A brace or a percent sign in the text of a template is only text."""
    assert read("100%s {{{id}}} }}", {"id": "x"}).label == "100%s {x} }"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("", "no field"),
        ("booking", "no field"),
        ("{{id}}", "no field"),
        ("{id", "single {"),
        ("id}", "single }"),
        ("{id}}", "single }"),
        ("{}", "not a path"),
        ("{a..b}", "not a path"),
        ("{.a}", "not a path"),
        ("{a.}", "not a path"),
        ("{ a}", "not a path"),
        ("{a b}", "not a path"),
        ("{a!r}", "not a path"),
        ("{a[0]}", "not a path"),
        ("{:int}", "not a path"),
        ("{a:int:str}", "not a path"),
        ("{a:float}", "unknown type 'float'"),
        ("{a:}", "unknown type ''"),
        ("{a:INT}", "unknown type"),
        ("{a:>10}", "unknown type"),
        ("x\ny{a}", "control or invisible"),
        ("x\u202e{a}", "control or invisible"),
        ("x\ud800{a}", "control or invisible"),
    ],
)
def test_malformed_template_is_refused(template: str, problem: str) -> None:
    """The declaration is checked when it is made, not when the first event comes."""
    with pytest.raises(BadTemplate, match=problem):
        KeyTemplate.parse(template)


def test_template_size_is_limited() -> None:
    """Length and number of fields have a limit, and the limit itself is allowed."""
    assert len(KeyTemplate.parse("{a}" * FIELDS_MAX).fields) == FIELDS_MAX
    with pytest.raises(BadTemplate, match="17 fields"):
        KeyTemplate.parse("{a}" * (FIELDS_MAX + 1))
    assert KeyTemplate.parse("x" * (TEMPLATE_LENGTH_MAX - 3) + "{a}")
    with pytest.raises(BadTemplate, match="over 500"):
        KeyTemplate.parse("x" * (TEMPLATE_LENGTH_MAX - 2) + "{a}")


@pytest.mark.parametrize("template", [None, 5, b"{a}"])
def test_template_must_be_a_text(template: Any) -> None:
    """Another type is a mistake in the program and is named as one."""
    with pytest.raises(BadTemplate, match="is a text"):
        KeyTemplate.parse(template)


@pytest.mark.parametrize(
    "name",
    [
        "message_id",
        "messageId",
        "MessageId",
        "MESSAGE-ID",
        "receipt_handle",
        "delivery_tag",
        "offset",
        "partition",
        "retry_count",
        "retries",
        "attempt",
        "delivery_attempt",
        "approximate_receive_count",
        "ApproximateReceiveCount",
        "request_id",
        "X-Request-Id",
        "trace_id",
        "span_id",
        "received_at",
        "delivered_at",
        "sent_at",
        "ingested_at",
        "now",
        "tool_call_id",
        "meta.sent_at",
        "headers.message_id.0",
        "offset:int",
        "queue-message-id",
        "sqsMessageId",
        "SQSMessageID",
        "kafka_offset",
        "amqp_delivery_tag",
        "num_retries",
        "numberOfRetries",
        "processed_at",
        "total_attempts",
        "serviceBusMessageId",
        "kafka_timestamp",
        "kafkaTimestamp",
        "kafka_record_timestamp",
        "KafkaTopicPartition",
        "timestamp_kafka",
        "sqs_event_id",
        "sns-id",
        "nats_seq",
        "pubsub_publish_time",
        "kinesisSequenceNumber",
        "original_message_id",
        "parentMessageId",
        "first_message_id_seen",
        "sqs_receipt_handle_value",
        "last_delivery_attempt_at",
        "order_retry_count",
        "http_trace_id_hex",
        "message_timestamp",
        "message_received_at",
        "messageSentAt",
        "event_enqueued_at",
        "job_lock_token",
        "lastVisibilityTimeout",
        "booking_ingested_at",
    ],
)
def test_transport_fields_are_refused(name: str) -> None:
    """What the transport makes anew on each delivery cannot identify an event."""
    with pytest.raises(BadTemplate, match=r"transport.*business.*allow_transport"):
        KeyTemplate.parse(f"booking:{{{name}}}")


@pytest.mark.parametrize(
    "name",
    [
        "message_id.value",
        "offset_hours",
        "attempted_by",
        "id",
        "correlation_id",
        "items.0.id",
        "leave_request_id",
        "gps_offset_m",
        "order_delivery_id",
        "stream",
        "queue",
        "http_method",
        "processed_by",
        "order_number",
        "message_type",
        "retail_price",
        "delivery_number",
        "service_request_id",
        "partition_key",
        "number_of_items",
        "message",
        "message_code",
        "offset_account",
        "carbon_offset_id",
        "disk_partition_name",
        "payment_attempt_id",
        "quiz_attempt_number",
        "kafka_topic",
        "kafka_order_id",
        "kafka_key",
        "sqs_message_group_id",
        "sns_topic_arn",
        "celery_price",
        "goods_received_at",
        "parcel_delivery_count",
        "invoice_sent_date",
        "trace_element",
        "traceability_number",
        "token_symbol",
        "record_number",
        "event_date",
        "timestamp",
        "shard",
        "retry_policy",
        "visibility",
        "messaging_id",
    ],
)
def test_business_fields_are_not_mistaken_for_transport(name: str) -> None:
    """Only the last name counts: phrases of a transport, or its words beside a broker's name."""
    assert KeyTemplate.parse(f"{{{name}}}")


@pytest.mark.parametrize("allowed", ["message_id", "messageId", "meta.message_id"])
def test_transport_field_can_be_allowed_by_name(allowed: str) -> None:
    """Some senders keep their message id through every redelivery; they can say so."""
    template = KeyTemplate.parse("{meta.message_id}", allow_transport=[allowed])
    assert template.derive({"meta": {"message_id": "m"}}).parts == ("m",)


def test_allowing_one_transport_field_allows_no_other() -> None:
    """The exception is for the named field only."""
    with pytest.raises(BadTemplate, match="attempt"):
        KeyTemplate.parse("{message_id}:{attempt}", allow_transport={"message_id"})
    with pytest.raises(BadTemplate):
        KeyTemplate.parse("{other.message_id}", allow_transport={"meta.message_id"})


def test_allow_transport_takes_a_collection() -> None:
    """One text would be read letter by letter and allow nothing."""
    with pytest.raises(BadTemplate, match="collection"):
        KeyTemplate.parse("{message_id}", allow_transport="message_id")


class Status(enum.StrEnum):
    OPEN = "open"


@pytest.mark.parametrize(
    ("template", "value", "part"),
    [
        ("{v}", "SHP-1", "SHP-1"),
        ("{v}", 7, "7"),
        ("{v}", "7", "7"),
        ("{v}", -7, "-7"),
        ("{v}", 2**64, "18446744073709551616"),
        ("{v}", 10**254, "1" + "0" * 254),
        ("{v}", "a b", "a b"),
        ("{v}", "a", "a"),
        ("{v}", "x" * 255, "x" * 255),
        ("{v}", "日本" * 100, "日本" * 100),
        ("{v}", "\U0001f600", "\U0001f600"),
        ("{v}", "\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("{v}", Status.OPEN, "open"),
        ("{v:str}", "7", "7"),
        ("{v:int}", 7, "7"),
        ("{v:int}", "7", "7"),
        ("{v:int}", "-12", "-12"),
        ("{v:int}", 0, "0"),
        (
            "{v:uuid}",
            "0190A5C2-7B3E-7CCC-8F00-0123456789AB",
            "0190a5c2-7b3e-7ccc-8f00-0123456789ab",
        ),
        ("{v:date}", "2024-02-29", "2024-02-29"),
        ("{v:timestamp}", "2024-06-01T00:30:00+02:00", "2024-05-31T22:30:00.000Z"),
        ("{v:timestamp}", "2024-05-31t22:30:00.000000z", "2024-05-31T22:30:00.000Z"),
        ("{v:timestamp}", "2024-05-31T22:30:00.000001Z", "2024-05-31T22:30:00.000001Z"),
        ("{v:bool}", True, "true"),
        ("{v:bool}", False, "false"),
    ],
)
def test_value_is_normalised_by_its_type(template: str, value: object, part: str) -> None:
    """Two spellings of one value give one part."""
    derived = read(template, {"v": value})
    assert derived.parts == (part,)
    assert type(derived.parts[0]) is str


@pytest.mark.parametrize(
    ("template", "value", "reason"),
    [
        ("{v}", None, "null"),
        ("{v}", "", "empty"),
        ("{v}", [], "not_scalar"),
        ("{v}", ["x"], "not_scalar"),
        ("{v}", ("x",), "not_scalar"),
        ("{v}", {"x": 1}, "not_scalar"),
        ("{v}", MappingProxyType({}), "not_scalar"),
        ("{v}", True, "wrong_type"),
        ("{v}", 1.0, "wrong_type"),
        ("{v}", Decimal(1), "wrong_type"),
        ("{v}", b"x", "wrong_type"),
        ("{v}", "x" * 256, "too_long"),
        ("{v}", "é" * 256, "too_long"),
        ("{v}", 10**255, "too_long"),
        pytest.param("{v}", 10**5000, "too_long", id="unprintable integer"),
        ("{v}", "a\nb", "control_character"),
        ("{v}", "a\x00", "control_character"),
        ("{v}", "a\x1b[31m", "control_character"),
        ("{v}", "a\x7f", "control_character"),
        ("{v}", "a\x85b", "control_character"),
        ("{v}", "a\u2028b", "control_character"),
        ("{v}", "a\u202eb", "control_character"),
        ("{v}", "a\u200bb", "control_character"),
        ("{v}", "\ufeffa", "control_character"),
        ("{v}", " a", "padded"),
        ("{v}", "a ", "padded"),
        ("{v}", "a\u00a0", "padded"),
        ("{v}", "\u3000a", "padded"),
        ("{v}", " ", "padded"),
        ("{v}", "a\ud800", "lone_surrogate"),
        ("{v:str}", 7, "wrong_type"),
        ("{v:str}", " a", "padded"),
        ("{v:int}", True, "wrong_type"),
        ("{v:int}", 7.0, "wrong_type"),
        ("{v:int}", "7.0", "wrong_type"),
        ("{v:int}", "007", "wrong_type"),
        ("{v:int}", "-0", "wrong_type"),
        ("{v:int}", "+7", "wrong_type"),
        ("{v:int}", "1_000", "wrong_type"),
        ("{v:int}", "\u0667", "wrong_type"),
        ("{v:int}", "", "empty"),
        ("{v:int}", 10**300, "too_long"),
        ("{v:uuid}", "0190a5c27b3e7ccc8f000123456789ab", "wrong_type"),
        ("{v:uuid}", "{0190a5c2-7b3e-7ccc-8f00-0123456789ab}", "wrong_type"),
        ("{v:uuid}", "urn:uuid:0190a5c2-7b3e-7ccc-8f00-0123456789ab", "wrong_type"),
        ("{v:uuid}", 7, "wrong_type"),
        ("{v:date}", "2023-02-29", "wrong_type"),
        ("{v:date}", "20240531", "wrong_type"),
        ("{v:date}", "2024-W22-5", "wrong_type"),
        ("{v:date}", "2024-05-31T00:00:00Z", "wrong_type"),
        ("{v:date}", "31.05.2024", "wrong_type"),
        ("{v:timestamp}", "2024-05-31T22:30:00", "wrong_type"),
        ("{v:timestamp}", 1717193647, "wrong_type"),
        ("{v:timestamp}", None, "null"),
        ("{v:bool}", "true", "wrong_type"),
        ("{v:bool}", 1, "wrong_type"),
        ("{v:bool}", {}, "not_scalar"),
    ],
)
def test_value_of_a_doubtful_key_is_refused(template: str, value: object, reason: str) -> None:
    """Each refusal carries the reason that quarantine is counted by, and the path."""
    refused = refusal(template, {"v": value})
    assert (refused.reason, refused.path) == (reason, "v")


@pytest.mark.parametrize("type_name", ["", *(":" + name for name in TYPES)])
def test_absent_field_is_missing_for_every_type(type_name: str) -> None:
    """Drift in the sender's schema is seen as what it is."""
    refused = refusal(f"{{data.id{type_name}}}", {"data": {"ID": "x"}})
    assert (refused.reason, refused.path) == ("missing", "data.id")


@pytest.mark.parametrize("payload", [None, [], [{"id": 1}], "x", 7, b"{}"])
def test_event_must_be_an_object(payload: object) -> None:
    """A list or a bare value has no fields."""
    assert refusal("{id}", payload).reason == "not_an_object"


@pytest.mark.parametrize("type_name", ["", *(":" + name for name in TYPES)])
@pytest.mark.parametrize("value", ["\x07secret-" * 8, " secret-" * 8, "secret-" * 60, ["secret-"]])
def test_refusal_never_repeats_the_value(type_name: str, value: object) -> None:
    """Fields may hold personal data, and refusals are logged."""
    refused = refusal(f"{{v{type_name}}}", {"v": value})
    assert "secret" not in str(refused)


def test_long_label_is_cut_but_the_parts_are_whole() -> None:
    """The label is for people; the key is made from the parts."""
    derived = read("{a}:{b}", {"a": "x" * 255, "b": "y"})
    assert len(derived.label) == LABEL_LENGTH_MAX
    assert derived.label.endswith("…")
    assert derived.parts == ("x" * 255, "y")


def test_integer_and_text_give_the_same_part() -> None:
    """A sender that changes 7 into "7" must meet its own key, not make a new one."""
    assert read("{id}", {"id": 7}).parts == read("{id}", {"id": "7"}).parts


def test_unicode_spellings_of_one_text_give_the_same_part() -> None:
    """Composed and decomposed letters are one text: systems change one into the other on the way."""
    assert read("{id}", {"id": "e\u0301"}).parts == read("{id}", {"id": "é"}).parts == ("é",)
    assert read("{id:str}", {"id": "e\u0301"}).parts == ("é",)
    assert read("{id}", {"id": "ﬁ"}).parts == ("ﬁ",)  # what only looks alike stays apart


@bounded
@given(st.text(max_size=300))
@example("a\ud800")
@example("x" * 255)
def test_text_is_taken_unchanged_or_refused(value: str) -> None:
    """A text field is never altered on its way into the key."""
    assert parts_or_reason("{v}", {"v": value}) in {(value,), *REASONS}


@bounded
@given(st.text(max_size=300), st.sampled_from(["", *(":" + name for name in TYPES)]))
def test_label_is_short_and_without_control_characters(value: str, type_name: str) -> None:
    """Whatever comes in, the label can be shown on a terminal."""
    try:
        label = read(f"k:{{v{type_name}}}", {"v": value}).label
    except InputRefused:
        return
    assert len(label) <= LABEL_LENGTH_MAX
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F for char in label)
    assert label.encode()


@bounded
@given(st.text(alphabet="{}abc:._%\n é", max_size=30))
def test_arbitrary_template_is_parsed_or_refused_and_nothing_else(text: str) -> None:
    """No text makes the parser fail in any other way."""
    try:
        template = KeyTemplate.parse(text)
    except BadTemplate:
        return
    assert template.text == text
    assert 1 <= len(template.fields) <= FIELDS_MAX


@pytest.mark.slow
@bounded
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abv"), inner),
        max_leaves=8,
    ),
    st.sampled_from(["", *(":" + name for name in TYPES)]),
)
def test_arbitrary_event_is_read_or_refused_and_nothing_else(event: Any, type_name: str) -> None:
    """No event makes derive fail in any other way."""
    outcome = parts_or_reason(f"{{v{type_name}}}", event)
    assert outcome in REASONS or len(outcome) == 1
