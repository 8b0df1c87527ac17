"""Arrays packed by hand in PostgreSQL's binary format.

A batch goes to the server as one statement with a few arrays. The driver's own array dumping costs about
20 µs a row, this about 2; see docs/decisions/0007. Only this file knows the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Final

from psycopg import Connection
from psycopg.abc import DumperKey
from psycopg.adapt import Buffer, Dumper, PyFormat
from psycopg.pq import Format

_BYTEA: Final = (17, 1001)
_TEXT: Final = (25, 1009)
_BIGINT: Final = (20, 1016)
_INTEGER: Final = (23, 1007)
_NULL: Final = pack(">i", -1)


class _Bytes: ...


class _Texts: ...


class _Bigints: ...


class _Integers: ...


_KINDS: Final[dict[int, type]] = {1001: _Bytes, 1009: _Texts, 1016: _Bigints, 1007: _Integers}


class Packed:
    """An array, ready to be sent."""

    __slots__ = ("body", "oid")

    def __init__(self, body: bytes, oid: int) -> None:
        self.body = body
        self.oid = oid


class PackedDumper(Dumper):
    """Hands packed arrays to the driver as they are."""

    format = Format.BINARY

    def dump(self, obj: Packed) -> Buffer | None:
        """The bytes on the wire."""
        return obj.body

    def get_key(self, obj: Packed, format: PyFormat) -> DumperKey:  # noqa: A002  the driver's name
        """One dumper for each array type."""
        return (Packed, _KINDS[obj.oid])

    def upgrade(self, obj: Packed, format: PyFormat) -> Dumper:  # noqa: A002  the driver's name
        """A dumper that says which array type it is."""
        dumper = PackedDumper(Packed)
        dumper.oid = obj.oid
        return dumper


def register(connection: Connection[tuple[object, ...]]) -> None:
    """Teaches a connection to send packed arrays."""
    connection.adapters.register_dumper(Packed, PackedDumper)


def _head(count: int, element: int, *, nulls: bool) -> bytes:
    return pack(">iiIii", 1, int(nulls), element, count, 1) if count else pack(">iiI", 0, 0, element)


def bytea_array(values: Sequence[bytes | None]) -> Packed:
    """Packs bytes."""
    return _variable(values, *_BYTEA)


def text_value(value: str | None) -> str | None:
    """U+0000 is not text in PostgreSQL and is made visible."""
    return None if value is None else value.replace("\0", "\u2400")


def text_array(values: Sequence[str | None]) -> Packed:
    """Packs text, with U+0000 made visible."""
    encoded = [None if v is None else v.replace("\0", "\u2400").encode() for v in values]
    return _variable(encoded, *_TEXT)


def _variable(values: Sequence[bytes | None], element: int, oid: int) -> Packed:
    nulls = None in values
    pieces = [_head(len(values), element, nulls=nulls)]
    for value in values:
        if value is None:
            pieces.append(_NULL)
        else:
            pieces += (pack(">i", len(value)), value)
    return Packed(b"".join(pieces), oid)


def bigint_array(values: Sequence[int | None]) -> Packed:
    """Packs 64-bit integers."""
    if None in values:
        packed = [None if value is None else pack(">q", value) for value in values]
        return _variable(packed, *_BIGINT)
    return _fixed(values, "iq", 8, _BIGINT)  # type: ignore[arg-type]


def integer_array(values: Sequence[int]) -> Packed:
    """Packs 32-bit integers."""
    return _fixed(values, "ii", 4, _INTEGER)


def _fixed(values: Sequence[int], code: str, width: int, oids: tuple[int, int]) -> Packed:
    flat = [width] * (2 * len(values))
    flat[1::2] = values
    body = pack(">" + code * len(values), *flat)
    return Packed(_head(len(values), oids[0], nulls=False) + body, oids[1])
