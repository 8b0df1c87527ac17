"""Signs an outgoing webhook as Standard Webhooks asks: `webhook-id`, `-timestamp` and `-signature`.

Several keys sign at once while a secret is being rotated: a receiver that knows any of them is content.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final

from oncegate.errors import BadSecret
from oncegate.signatures.keys import SigningKey

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"
KEYS_MAX: Final = 8  # what a receiver looks at; more would go unseen


def signed_content(message_id: str, timestamp: str, body: bytes) -> bytes:
    """The bytes that are signed."""
    return f"{message_id}.{timestamp}.".encode("ascii") + body


def sign(
    keys: Sequence[SigningKey], message_id: str, timestamp_s: int, body: bytes
) -> tuple[tuple[str, str], ...]:
    """The three headers of a webhook, with one entry for each key."""
    if not 0 < len(keys) <= KEYS_MAX:
        raise BadSecret(f"a webhook is signed with 1 to {KEYS_MAX} keys, not {len(keys)}")
    timestamp = str(timestamp_s)
    content = signed_content(message_id, timestamp, body)
    entries = [f"{key.version},{b2a_base64(key.sign(content), newline=False).decode()}" for key in keys]
    return (
        (ID_HEADER, message_id),
        (TIMESTAMP_HEADER, timestamp),
        (SIGNATURE_HEADER, " ".join(entries)),
    )
