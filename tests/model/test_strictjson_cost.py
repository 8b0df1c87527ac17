"""Reading JSON from strangers costs no more than its length."""

from __future__ import annotations

import time

import pytest

from oncegate.errors import MalformedRequest
from oncegate.model.strictjson import read_json

LENGTH = 40_000
DEEP = b"[" * 65  # enough brackets for their depth to be counted


@pytest.mark.parametrize(
    "body",
    [
        DEEP + b'"' + b'\\"' * LENGTH,
        DEEP + b'"' + b'\\"' * LENGTH + b"\\",
        DEEP + b'"' * (2 * LENGTH + 1),
        DEEP + b'"' + b"\\\\" * LENGTH,
        DEEP + b"\\" * LENGTH + b'"',
    ],
    ids=["quotes in a string that does not end", "and a backslash", "quotes", "backslashes", "outside"],
)
def test_a_string_that_does_not_end_is_looked_at_once(body: bytes) -> None:
    """In processor time, of the event loop: going back at every quotation mark took half a minute."""
    began = time.process_time()
    with pytest.raises(MalformedRequest):
        read_json(body)
    assert time.process_time() - began < 5


def test_brackets_in_strings_do_not_count() -> None:
    assert read_json(b'["' + b"[{" * 100 + b'\\"' + b"[" * 100 + b'"]') == ["[{" * 100 + '"' + "[" * 100]
    with pytest.raises(MalformedRequest, match="nested"):
        read_json(DEEP + b'""' + b"]" * 65)
