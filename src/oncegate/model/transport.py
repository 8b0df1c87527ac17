"""Names of fields that a transport fills in: other ones when the same event is sent again.

A key made from one of them is another key at each delivery. Names are compared word by word, in any case
(`sqsMessageId`, `queue-message-id`, `num_retries`): words that only say which transport it is are left out.
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


def is_transport(name: str) -> bool:
    """Whether a field's name says that a transport makes its value."""
    words = [word.lower() for word in _WORD.findall(name)]
    if words[:2] == ["service", "bus"]:  # a service_request_id is somebody's business
        words.pop(0)
    while words and words[0] in _QUALIFIERS and "".join(words) not in _NAMES:
        words.pop(0)
    return "".join(words) in _NAMES or folded(name) in _NAMES


def folded(name: str) -> str:
    """A name in one spelling: lower case, without separators."""
    return name.lower().replace("_", "").replace("-", "")
