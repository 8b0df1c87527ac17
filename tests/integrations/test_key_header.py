"""The header is one quoted string; anything else is refused, never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.integrations.keyheader import KEY_LENGTH_MAX, BadKeyHeader, read_key_header

PRINTABLE = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=KEY_LENGTH_MAX
)


def _quoted(key: str) -> bytes:
    return ('"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"').encode()


@given(PRINTABLE)
def test_every_printable_key_is_read_back(key: str) -> None:
    assert read_key_header([_quoted(key)]) == key


def test_spaces_around_the_string_do_not_count() -> None:
    assert read_key_header([b'  "a b"  ']) == "a b"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b'""',
        b"plain",
        b'"open',
        b'"a" "b"',
        b'"a", "b"',
        b'"a";x=1',
        b'"a\\n"',
        b'"tab\there"',
        b'"nul\x00"',
        b'"line\r\nbreak"',
        b'"\x7f"',
        '"ä"'.encode(),
        '"ä"'.encode("latin-1"),
        b"'a'",
        b":YQ==:",
        b"1",
        b'"' + b"k" * (KEY_LENGTH_MAX + 1) + b'"',
    ],
)
def test_a_header_that_is_not_one_string_is_refused(value: bytes) -> None:
    with pytest.raises(BadKeyHeader):
        read_key_header([value])


def test_two_headers_are_refused_even_if_equal() -> None:
    with pytest.raises(BadKeyHeader):
        read_key_header([b'"a"', b'"a"'])


def test_bare_keys_are_the_same_keys_where_they_are_allowed() -> None:
    assert read_key_header([b"8e03978e-40d5"], bare_keys=True) == "8e03978e-40d5"
    assert read_key_header([b'"8e03978e-40d5"'], bare_keys=True) == "8e03978e-40d5"
    with pytest.raises(BadKeyHeader):
        read_key_header([b"two words"], bare_keys=True)
