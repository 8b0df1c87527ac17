"""Names of fields that a transport fills in: other ones when the same event is sent again.

A key made from one of them is another key at each delivery. Names are compared word by word, in any case
(`sqsMessageId`, `queue-message-id`, `num_retries`). A phrase of a transport counts wherever it stands in a
name. A single word that business uses too (`message`, `offset`, `attempt`) counts only alone, or behind
words that name a transport: `kafka_offset` is refused, `offset_account` is not.
"""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# In front of a transport's name these change nothing: kafka_offset is an offset.
_QUALIFIERS: Final = frozenset(
    {
        "amqp",
        "aws",
        "azure",
        "broker",
        "bus",
        "celery",
        "consumer",
        "current",
        "eventbridge",
        "gcp",
        "google",
        "http",
        "internal",
        "jms",
        "kafka",
        "kinesis",
        "last",
        "mq",
        "mqtt",
        "nats",
        "no",
        "num",
        "number",
        "of",
        "our",
        "pubsub",
        "queue",
        "rabbit",
        "rabbitmq",
        "record",
        "redis",
        "sns",
        "sqs",
        "stomp",
        "stream",
        "the",
        "total",
        "transport",
        "webhook",
        "x",
    }
)
# Folded: lower case, without _ and -.
_NAMES: Final = frozenset(
    {
        "ackdeadline",
        "ackid",
        "acktoken",
        "approximatefirstreceivetimestamp",
        "approximatereceivecount",
        "attempt",
        "attemptcount",
        "attemptid",
        "attemptno",
        "attemptnumber",
        "attempts",
        "consumedat",
        "consumertag",
        "currenttime",
        "deliveredat",
        "deliveries",
        "deliveryattempt",
        "deliveryattempts",
        "deliverycount",
        "deliveryid",
        "deliverytag",
        "dequeuedat",
        "enqueuedat",
        "eventoffset",
        "handledat",
        "ingestedat",
        "locktoken",
        "messageid",
        "msgid",
        "nonce",
        "now",
        "numretries",
        "offset",
        "partition",
        "polledat",
        "popreceipt",
        "processedat",
        "processingtime",
        "publishtime",
        "queuedat",
        "receipthandle",
        "receipttime",
        "receivecount",
        "receivedat",
        "receivedtime",
        "receives",
        "receivetime",
        "redelivered",
        "redeliveries",
        "redeliverycount",
        "requestid",
        "retries",
        "retry",
        "retryattempt",
        "retrycount",
        "retryno",
        "retrynumber",
        "sentat",
        "senttimestamp",
        "sequencetoken",
        "spanid",
        "streamid",
        "timeofreceipt",
        "toolcallid",
        "tooluseid",
        "traceid",
        "traceparent",
        "tracestate",
        "visibilitytimeout",
        "xamzntraceid",
        "xrequestid",
    }
)


# Phrases of a transport, word by word, wherever they stand in a name: `last_sqs_receipt_handle_value`.
_PHRASES: Final = frozenset(
    tuple(phrase.split())
    for phrase in (
        "ack deadline", "ack id", "ack token", "consumer tag", "delivery attempt", "delivery attempts",
        "delivery tag", "dequeued at", "enqueued at", "enqueued time", "first receive timestamp",
        "ingested at", "lock token", "message id", "message offset", "message received", "message sent",
        "message timestamp", "msg id", "num retries", "pop receipt", "receipt handle", "receive count",
        "redelivery count", "retry attempt", "retry count", "retry no", "retry number", "sent timestamp",
        "sequence token", "span id", "tool call id", "tool use id", "trace id", "visibility timeout",
    )
)  # fmt: skip
# What a broker numbers or dates is its own, wherever its name stands: `kafka_timestamp`, `ts_kafka`.
_BROKERS: Final = frozenset(
    {
        "amqp", "celery", "eventbridge", "jms", "kafka", "kinesis", "mqtt", "nats", "pubsub", "rabbitmq",
        "sns", "sqs", "stomp",
    }
)  # fmt: skip
_OF_BROKERS: Final = frozenset(
    {
        "arrival", "attempt", "date", "epoch", "id", "index", "number", "offset", "partition", "position",
        "seq", "sequence", "shard", "tag", "time", "timestamp", "token", "ts",
    }
)  # fmt: skip
_THINGS_OF_BROKERS: Final = frozenset({"create", "created", "event", "log", "message", "record", "topic"})


def is_transport(name: str) -> bool:
    """Whether a field's name says that a transport makes its value."""
    words = [word.lower() for word in _WORD.findall(name)]
    if _has_phrase(words) or _is_of_broker(words):
        return True
    if words[:2] == ["service", "bus"]:  # a service_request_id is somebody's business
        words.pop(0)
    while words and words[0] in _QUALIFIERS and "".join(words) not in _NAMES:
        words.pop(0)
    return "".join(words) in _NAMES or folded(name) in _NAMES


def _has_phrase(words: list[str]) -> bool:
    return any(
        tuple(words[start : start + length]) in _PHRASES
        for length in (2, 3)
        for start in range(len(words) - length + 1)
    )


def _is_of_broker(words: list[str]) -> bool:
    rest = [word for word in words if word not in _BROKERS]
    if len(rest) in (0, len(words)) or rest[-1] not in _OF_BROKERS:
        return False
    return _OF_BROKERS.union(_THINGS_OF_BROKERS, _QUALIFIERS).issuperset(rest)


def folded(name: str) -> str:
    """A name in one spelling: lower case, without separators."""
    return name.lower().replace("_", "").replace("-", "")
