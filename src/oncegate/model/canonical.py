"""Canonical JSON (RFC 8785) and the fingerprint of an event.

Called once per arrival by the gate, so it is the hot path; also by the journal and the scan for
duplicates. Must never change what it writes for a value it already accepts, because stored
fingerprints are compared with new ones for as long as the ledger lives, and must never change the
event it is given.

One difference from RFC 8785: integers beyond 2**53 are written with all their digits instead of
being refused, since 64-bit ids are common.

The C encoder of msgspec writes RFC 8785 byte for byte as long as there is no float, no key outside
ASCII (RFC 8785 sorts by UTF-16, the encoder by UTF-8) and nothing but the plain JSON types. A short
walk checks that and spells out floats on its way. What it cannot vouch for is rewritten value by
value, with the keys already in order, or refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import deepcopy
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from typing import Any, Final, TypeAlias

from msgspec import Raw
from msgspec.json import Encoder

from oncegate.errors import ConfigError, EventNotStorable
from oncegate.model.limits import DEPTH_MAX
from oncegate.model.paths import parse_path

FINGERPRINT_BYTES: Final = 16

_COMPONENTS_SHOWN_MAX: Final = 8
_COMPONENT_LENGTH_MAX: Final = 40
_TEXT: Final = frozenset({str})
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_UNCHANGING: Final = _SCALARS | {float}
_CONTAINERS: Final = frozenset({dict, list, tuple})
_encode_sorted: Final = Encoder(order="sorted").encode
_encode_in_order: Final = Encoder().encode

# Where the walk stands, as the keys and indexes that lead there; its length is the depth.
_Trail: TypeAlias = list[str | int]
# The ignored paths as a tree; None marks what is left out.
_Pruning: TypeAlias = "dict[str, _Pruning | None]"


def canonical_json(value: object) -> bytes:
    """Return the one canonical JSON text of `value`, or raise EventNotStorable naming the place."""
    simple = _simplified(value, 1) if type(value) in _CONTAINERS else None
    if simple is not None:
        try:
            return _encode_sorted(simple)
        except (ValueError, OverflowError):
            pass  # a lone surrogate or an endless integer: the rewriting says where
    return _encode_in_order(_rewritten(value, []))


def canonical_again(value: object, known: object, body: bytes) -> bytes:
    """The canonical JSON of a value that differs in texts alone from a known one, whose JSON is `body`."""
    try:
        if _encode_sorted(known) == body:
            return _encode_sorted(value)
    except (TypeError, ValueError, OverflowError):
        pass  # as in canonical_json
    return canonical_json(value)


def copied(value: Any) -> Any:
    """Return an event of its own: changes to it leave the one that was given alone, and the reverse."""
    kind = type(value)
    if kind is dict:
        copy: dict[Any, Any] = value.copy()
        for key, child in value.items():
            if type(child) not in _UNCHANGING:
                copy[key] = copied(child)
        return copy
    if kind is list:
        return [child if type(child) in _UNCHANGING else copied(child) for child in value]
    if kind is tuple:
        return tuple([copied(child) for child in value])
    return deepcopy(value) if isinstance(value, (dict, list, tuple)) else value


def fingerprint(payload: object, ignore: frozenset[str] | tuple[str, ...] = ()) -> bytes:
    """Return 16 bytes that identify the content, with the dotted paths in `ignore` left out."""
    kept = _without(payload, _pruning_of(ignore)) if ignore else payload
    return fingerprint_of(canonical_json(kept))


def fingerprint_of(body: bytes) -> bytes:
    """Return the fingerprint of a content that is already canonical JSON."""
    return sha256(body).digest()[:FINGERPRINT_BYTES]


def _simplified(container: Any, depth: int) -> object | None:
    """Return what the sorting encoder writes canonically for `container`, or None.

    Most events come back as they are; one with floats comes back with the floats spelled out.
    This loop is most of the cost of an arrival, hence in one piece.
    """
    if depth > DEPTH_MAX:
        return None
    if type(container) is dict:
        # Exactly str: the encoder writes an enum by its value, and with keys that redefine
        # equality one text could stand there twice.
        if not (_TEXT.issuperset(map(type, container)) and "".join(container).isascii()):
            return None
        if _SCALARS.issuperset(map(type, container.values())):
            return container
        children: Iterable[tuple[Any, object]] = container.items()
    else:
        children = enumerate(container)
    changes: dict[Any, object] = {}
    for place, child in children:
        kind = type(child)
        if kind in _SCALARS:
            continue
        simple = _simplified(child, depth + 1) if kind in _CONTAINERS else _float_text(child)
        if simple is None:
            return None
        if simple is not child:
            changes[place] = simple
    return _changed(container, changes) if changes else container


def _float_text(child: object) -> Raw | None:
    if type(child) is float and isfinite(child):
        return Raw(_as_ecmascript(child).encode())
    return None


def _changed(container: Any, changes: dict[Any, object]) -> object:
    copy = dict(container) if type(container) is dict else list(container)
    for place, child in changes.items():
        copy[place] = child
    return copy


def _rewritten(value: object, trail: _Trail) -> object:
    """Return `value` in a form that the encoder, told to keep the order, writes canonically."""
    if isinstance(value, str):
        return _checked_text(value, trail)
    if isinstance(value, float):
        return _rewritten_float(value, trail)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _rewritten_integer(value, trail)
    if len(trail) >= DEPTH_MAX:
        raise _refusal(trail, f"nested more than {DEPTH_MAX} deep")
    if isinstance(value, dict):
        return _rewritten_mapping(value, trail)
    if isinstance(value, (list, tuple)):
        return _rewritten_sequence(value, trail)
    raise _refusal(trail, f"{type(value).__name__[:_COMPONENT_LENGTH_MAX]} is not a JSON type")


def _rewritten_mapping(mapping: dict[object, object], trail: _Trail) -> dict[str, object]:
    rewritten: dict[str, object] = {}
    for key, child in _sorted_items(mapping, trail):
        if key in rewritten:
            raise _refusal(trail, "has two keys with the same text")
        trail.append(key)
        rewritten[key] = _rewritten(child, trail)
        trail.pop()
    return rewritten


def _rewritten_sequence(values: Collection[object], trail: _Trail) -> list[object]:
    rewritten = []
    for index, child in enumerate(values):
        trail.append(index)
        rewritten.append(_rewritten(child, trail))
        trail.pop()
    return rewritten


def _sorted_items(mapping: dict[object, object], trail: _Trail) -> list[tuple[str, object]]:
    items = [(_checked_key(key, trail), child) for key, child in mapping.items()]
    return sorted(items, key=_utf16_of_key)


def _utf16_of_key(item: tuple[str, object]) -> bytes:
    return item[0].encode("utf-16-be")


def _checked_key(key: object, trail: _Trail) -> str:
    if not isinstance(key, str):
        raise _refusal(trail, f"has a key of type {type(key).__name__[:_COMPONENT_LENGTH_MAX]}")
    return _checked_text(key, trail)


def _checked_text(text: str, trail: _Trail) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _refusal(trail, "has a lone surrogate, which is not Unicode text") from None
    # A subclass (an enum, say) is written as the text it is, not as what it prints.
    return str.__str__(text)


def _rewritten_integer(value: int, trail: _Trail) -> Raw:
    try:
        return Raw(int.__repr__(value).encode())
    except ValueError:
        raise _refusal(trail, "is an integer of too many digits") from None


def _rewritten_float(value: float, trail: _Trail) -> Raw:
    if not isfinite(value):
        raise _refusal(trail, "is not a finite number")
    return Raw(_as_ecmascript(value).encode())


def _as_ecmascript(value: float) -> str:
    """Return the text that ECMAScript gives a number: Python's digits, in another layout."""
    if value == 0:
        return "0"  # also for -0.0
    text = float.__repr__(value)
    if "e" not in text:
        return text.removesuffix(".0")
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, decimals = mantissa.lstrip("-").partition(".")
    return sign + _laid_out(whole + decimals, int(exponent) + 1)


def _laid_out(digits: str, point: int) -> str:
    """Place the decimal point `point` digits from the left, as ECMAScript's Number::toString does.

    Python goes over to exponents below 1e-4 and from 1e16 on, ECMAScript below 1e-6 and from 1e21
    on, so only numbers outside Python's range come here and the point is never inside the digits.
    """
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{mantissa}e{point - 1:+d}"


def _refusal(trail: _Trail, problem: str) -> EventNotStorable:
    shown = [_shown(component) for component in trail[:_COMPONENTS_SHOWN_MAX]]
    if len(trail) > _COMPONENTS_SHOWN_MAX:
        shown.append("...")
    return EventNotStorable(f"{'.'.join(['$', *shown])} {problem}; an event must be plain JSON")


def _shown(component: str | int) -> str:
    text = str(component)[:_COMPONENT_LENGTH_MAX]
    return text if text.isprintable() else ascii(text)[1:-1]


def _without(value: object, pruning: _Pruning) -> object:
    """Return `value` less the pruned paths; only what lies on a path is copied."""
    if isinstance(value, (list, tuple)):
        numbered = {str(index): child for index, child in enumerate(value)}
        return list(_without_names(numbered, pruning).values())
    if isinstance(value, dict):
        return _without_names(dict(value), pruning)
    return value


def _without_names(copy: dict[str, object], pruning: _Pruning) -> dict[str, object]:
    for name, below in pruning.items():
        if name not in copy:
            continue
        if below is None:
            del copy[name]
        else:
            copy[name] = _without(copy[name], below)
    return copy


@lru_cache(maxsize=256)
def _pruning_of(ignore: Collection[str]) -> _Pruning:
    if isinstance(ignore, str):
        raise ConfigError("ignore takes a collection of paths, not one text")
    pruning: _Pruning = {}
    for path in map(parse_path, ignore):
        _add_path(pruning, path)
    return pruning


def _add_path(pruning: _Pruning, path: tuple[str, ...]) -> None:
    name, *below = path
    if not below:
        pruning[name] = None
        return
    branch = pruning.setdefault(name, {})
    if branch is not None:
        _add_path(branch, tuple(below))
