"""Key templates: which fields of an event say what it is about.

`shipment-milestone:{shipment_id}:{milestone}:{effective_date:date}` is declared once per surface
and read from every arrival. Called by the surfaces (parse) and the gate (derive). Must never guess:
a field that is missing, padded or of another type is refused, because a key made from it would be a
different key, and the effect would run a second time. Must never repeat a value in a refusal, since
it may be personal data.

A field is `{path}` or `{path:type}`; `{{` and `}}` are literal braces. Without a type, a text or an
integer is accepted. The parts carry no type: 7 and "7" give the same key on purpose, so that a
sender that changes its mind is a conflict in front of a person and not a second effect. For the same
reason text is normalised to NFC: an é is the same é in one code point or in two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Final

from msgspec import Struct

from oncegate.errors import BadTemplate, BadTimestamp, InputRefused
from oncegate.model.paths import MISSING, lookup
from oncegate.model.timestamps import format_timestamp, parse_timestamp
from oncegate.model.transport import folded, is_transport

TEMPLATE_LENGTH_MAX: Final = 500
FIELDS_MAX: Final = 16
PART_LENGTH_MAX: Final = 255
LABEL_LENGTH_MAX: Final = 120

_ECHO_LENGTH_MAX: Final = 40
# Comfortably more than 255 digits; beyond it the conversion to text is not even tried.
_INTEGER_BITS_MAX: Final = 1024

_TOKEN: Final = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[^{}]+|[{}]")
_FIELD: Final = re.compile(r"([\w$@#/-]+(?:\.[\w$@#/-]+)*)(?::([^:]*))?")
_PLAIN_TEXT: Final = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# Control characters, line separators, and what is invisible or turns the text around on a screen:
# two keys that look the same to a person must not differ. The joiners U+200C and U+200D stay
# allowed, as Persian and Indic words are spelled with them.
_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class FieldKind(Enum):
    """What a field's value must be."""

    ANY = ""
    TEXT = "str"
    INTEGER = "int"
    UUID = "uuid"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BOOLEAN = "bool"


_ANY: Final = FieldKind.ANY


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a template: where its value is and what it must be."""

    name: str
    path: tuple[str, ...]
    kind: FieldKind

    def read(self, payload: object) -> str:
        """Return the field's value as normalised text, or raise InputRefused."""
        path = self.path
        is_plain = len(path) == 1 and type(payload) is dict  # nearly every field of every event
        value = payload.get(path[0], MISSING) if is_plain else lookup(payload, path)  # type: ignore[attr-defined]
        if self.kind is _ANY:  # nearly every field; an enum as a dictionary key is slow
            if type(value) is str and _PLAIN_TEXT.fullmatch(value) is not None:
                return value
            return _normalise_any(value, self.name)
        return _NORMALISERS[self.kind](value, self.name)


class KeyParts(Struct, frozen=True, gc=False):
    """What one event gives to its key: the parts in template order, and a label for people."""

    parts: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """A checked template, ready to read any number of events."""

    text: str
    fields: tuple[Field, ...]
    label_format: str

    @classmethod
    def parse(cls, text: str, *, allow_transport: Collection[str] = ()) -> KeyTemplate:
        """Return the template that `text` declares, or raise BadTemplate with the next step."""
        return cls._parsed(text, _folded_names(allow_transport))

    @classmethod
    def parse_kept(cls, text: str) -> KeyTemplate:
        """Return a template that was declared before; whether it may name a field was decided then."""
        return cls._parsed(text, None)

    @classmethod
    def _parsed(cls, text: str, allowed: frozenset[str] | None) -> KeyTemplate:
        _check_template_text(text)
        fields: list[Field] = []
        label_format: list[str] = []
        for token in _TOKEN.findall(text):
            if token[0] == "{" and token[-1] == "}":
                fields.append(_parse_field(token[1:-1], allowed))
                label_format.append("%s")
            else:
                label_format.append(_literal(token).replace("%", "%%"))
        _check_field_count(fields)
        return cls(text, tuple(fields), "".join(label_format))

    def derive(self, payload: object) -> KeyParts:
        """Return the parts of the key that `payload` gives, or raise InputRefused."""
        if type(payload) is not dict and not isinstance(payload, Mapping):
            raise InputRefused("not_an_object", "$", f"the event is a {_type_name(payload)}")
        parts = tuple([field.read(payload) for field in self.fields])
        label = self.label_format % parts
        if len(label) > LABEL_LENGTH_MAX:
            label = label[: LABEL_LENGTH_MAX - 1] + "…"
        return KeyParts(parts, label)

    def parts_of(self, label: str) -> list[tuple[str, ...]]:
        """Return the parts that may have made a label; none if it was cut or is of another shape.

        Where a separator is also inside of a value, the first and the last way to part them are returned.
        """
        if len(label) >= LABEL_LENGTH_MAX:
            return []
        literals = [re.escape(one.replace("%%", "%")) for one in self.label_format.split("%s")]
        found = [re.fullmatch(way.join(literals), label, re.DOTALL) for way in ("(.+?)", "(.+)")]
        return list(dict.fromkeys(one.groups() for one in found if one is not None))


def _check_template_text(text: object) -> None:
    if not isinstance(text, str):
        raise BadTemplate(f"a template is a text, not a {_type_name(text)}")
    if len(text) > TEMPLATE_LENGTH_MAX:
        raise BadTemplate(f"the template is over {TEMPLATE_LENGTH_MAX} characters; shorten it")
    if _CONTROL.search(text) or _SURROGATE.search(text):
        raise BadTemplate("the template has control or invisible characters; remove them")


def _check_field_count(fields: Collection[Field]) -> None:
    if not fields:
        raise BadTemplate("the template has no field, so all events share one key; add {field}")
    if len(fields) > FIELDS_MAX:
        raise BadTemplate(f"the template has {len(fields)} fields; keep at most {FIELDS_MAX}")


def _literal(token: str) -> str:
    if token in ("{{", "}}"):
        return token[0]
    if token in ("{", "}"):
        raise BadTemplate(f"a single {token} in the template; write {token * 2} for the character")
    return token


def _parse_field(text: str, allowed: frozenset[str] | None) -> Field:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise BadTemplate(
            f"field {_quoted(text)} is not a path; write {{name}}, {{outer.inner}} or {{name:type}}"
        )
    name, type_name = match.groups()
    path = tuple(name.split("."))
    if allowed is not None:
        _refuse_transport(name, path, allowed)
    return Field(name, path, _parse_type(name, type_name))


def _parse_type(name: str, type_name: str | None) -> FieldKind:
    if type_name is None:
        return FieldKind.ANY
    try:
        return FieldKind(type_name or None)
    except ValueError:
        known = ", ".join(kind.value for kind in FieldKind if kind.value)
        raise BadTemplate(
            f"field {_quoted(name)} has the unknown type {_quoted(type_name)}; use one of {known}"
        ) from None


def _refuse_transport(name: str, path: tuple[str, ...], allowed: frozenset[str]) -> None:
    last = _last_name(path)
    if not is_transport(last) or folded(last) in allowed or folded(name) in allowed:
        return
    raise BadTemplate(
        f"field {_quoted(name)} names something of the transport, which changes when the same "
        "event is sent again; use a field that the sender's business gives it, or name it in "
        "allow_transport if it really stays the same"
    )


def _last_name(path: tuple[str, ...]) -> str:
    # An index says nothing: {headers.message_id.0} is a message id all the same.
    names = [component for component in path if not component.isdigit()]
    return names[-1] if names else path[-1]


def _folded_names(names: Collection[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise BadTemplate("allow_transport takes a collection of field names, not one text")
    return frozenset(map(folded, names))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _ECHO_LENGTH_MAX else text[: _ECHO_LENGTH_MAX - 1] + "…")


def _type_name(value: object) -> str:
    return type(value).__name__[:_ECHO_LENGTH_MAX]


def _refusal(name: str, expected: str, value: object) -> InputRefused:
    if value is MISSING:
        return InputRefused("missing", name, "the event has no such field")
    if value is None:
        return InputRefused("null", name, "the field is null")
    if isinstance(value, (Mapping, list, tuple)):
        return InputRefused("not_scalar", name, f"the field is a {_type_name(value)}")
    return InputRefused("wrong_type", name, f"expected {expected}, got {_type_name(value)}")


def _normalise_any(value: object, name: str) -> str:
    if isinstance(value, str):
        return _checked_text(value, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return _decimal(value, name)
    raise _refusal(name, "str or int", value)


def _normalise_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise _refusal(name, "str", value)
    return _checked_text(value, name)


def _normalise_integer(value: object, name: str) -> str:
    if isinstance(value, str):
        text = _checked_text(value, name)
        if _INTEGER.fullmatch(text):
            return text
        raise InputRefused("wrong_type", name, "expected an integer, got a text that is not one")
    if isinstance(value, int) and not isinstance(value, bool):
        return _decimal(value, name)
    raise _refusal(name, "int", value)


def _normalise_uuid(value: object, name: str) -> str:
    text = _normalise_text(value, name)
    if _UUID.fullmatch(text) is None:
        raise InputRefused("wrong_type", name, "expected a UUID such as 01234567-89ab-...")
    return text.lower()


def _normalise_date(value: object, name: str) -> str:
    text = _normalise_text(value, name)
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return text
    except ValueError:
        pass
    raise InputRefused("wrong_type", name, "expected a date such as 2024-05-31")


def _normalise_timestamp(value: object, name: str) -> str:
    try:
        return format_timestamp(parse_timestamp(_normalise_text(value, name)))
    except BadTimestamp as error:
        raise InputRefused("wrong_type", name, f"not a timestamp: {error}") from None


def _normalise_boolean(value: object, name: str) -> str:
    if not isinstance(value, bool):
        raise _refusal(name, "bool", value)
    return "true" if value else "false"


def _checked_text(value: str, name: str) -> str:
    # Nearly every value passes this one expression; the rest is only for saying what is wrong,
    # and for text outside ASCII.
    if _PLAIN_TEXT.fullmatch(value) is not None:
        return str.__str__(value)
    if value.isascii() or _SURROGATE.search(value):
        composed = str.__str__(value)
    else:
        composed = unicodedata.normalize("NFC", value)
    _check_text(composed, name)
    return composed


def _check_text(value: str, name: str) -> None:
    if not value:
        raise InputRefused("empty", name, "the field is an empty text")
    if len(value) > PART_LENGTH_MAX:
        raise _too_long(name)
    if _SURROGATE.search(value):
        raise InputRefused("lone_surrogate", name, "the text has a lone surrogate")
    if found := _CONTROL.search(value):
        code_point = f"U+{ord(found.group()):04X} at index {found.start()}"
        raise InputRefused("control_character", name, f"the text has {code_point}")
    if value != value.strip():
        raise InputRefused("padded", name, "the text begins or ends with white space")


def _too_long(name: str) -> InputRefused:
    return InputRefused("too_long", name, f"the value is over {PART_LENGTH_MAX} characters")


def _decimal(value: int, name: str) -> str:
    if value.bit_length() > _INTEGER_BITS_MAX:
        raise _too_long(name)
    text = int.__repr__(value)
    if len(text) > PART_LENGTH_MAX:
        raise _too_long(name)
    return text


_NORMALISERS: Final[dict[FieldKind, Callable[[object, str], str]]] = {
    FieldKind.ANY: _normalise_any,
    FieldKind.TEXT: _normalise_text,
    FieldKind.INTEGER: _normalise_integer,
    FieldKind.UUID: _normalise_uuid,
    FieldKind.DATE: _normalise_date,
    FieldKind.TIMESTAMP: _normalise_timestamp,
    FieldKind.BOOLEAN: _normalise_boolean,
}
