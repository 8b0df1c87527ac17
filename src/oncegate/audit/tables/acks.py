"""Acknowledgements: which calls say that a message is done, and which give it back."""

from __future__ import annotations

import re
from typing import Final

from oncegate.audit.flow.calls import CallInfo

_MESSAGE: Final = re.compile(
    r"(msg|message|delivery|event|record|m|item|raw|incoming|envelope|notification|received_message|job|body)$"
)
_CONSUMER: Final = re.compile(r"(consumer|kafka|c|reader)$")


def ack_of(call: CallInfo) -> str:
    """The name of the broker whose message a call acknowledges; empty for other calls."""
    method = call.method
    if method == "basic_ack":
        return "RabbitMQ"
    if method in ("delete_message", "delete_message_batch"):
        names = {one.arg for one in call.node.keywords}
        is_queue = call.owner_type.startswith("boto3:sqs") or bool(
            {"ReceiptHandle", "QueueUrl", "Entries"} & names
        )
        return "SQS" if is_queue else ""
    if method == "xack":
        return "Redis stream"
    if method in ("ack", "ack_sync", "double_ack") and not call.has_project_owner:
        return _acked(call)
    if method == "acknowledge" and (
        call.package == "google" or call.keyword("ack_ids", "request", "subscription") is not None
    ):
        return "Pub/Sub"
    if method in ("commit", "commit_async", "store_offsets") and not call.has_project_owner:
        is_kafka = any(word in call.full for word in ("KafkaConsumer", "confluent_kafka", "aiokafka"))
        named = not call.package and _CONSUMER.search(call.receiver_name)
        return "Kafka" if is_kafka or named else ""
    if method == "delete" and call.full.startswith("boto3:sqs"):
        return "SQS"
    return ""


def _acked(call: CallInfo) -> str:
    if call.package == "aio_pika" or "IncomingMessage" in call.owner_type:
        return "RabbitMQ"
    if call.package == "google":
        return "Pub/Sub"
    if call.package == "nats":
        return "NATS"
    return "message" if _MESSAGE.search(call.receiver_name) else ""


def gives_back(call: CallInfo) -> bool:
    """Whether a call gives a message back, or records that it failed."""
    if call.method in ("basic_nack", "basic_reject", "nack", "nak", "reject", "change_message_visibility", "term", "dead_letter",
                       "abandon", "requeue", "seek", "retry", "defer", "negative_acknowledge", "modify_ack_deadline"):  # fmt: skip
        return True
    words = f"{call.receiver_name}.{call.method}".lower()
    return bool(
        re.search(
            r"dead_?letter|dlq|quarantine|poison|fail(ure|ed)|park|requeue|retry|compensat|error_queue|mark_failed",
            words,
        )
    )
