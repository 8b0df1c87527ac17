"""Pydantic models as JSON and back, by their own methods alone: pydantic itself is never imported here.

Only the codecs call this. Must never store a model whose fields would come back with other values, and
never repeat a value in a message: it may be a secret.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import msgspec


def dump_plainly(value: Any) -> Any:
    """A model as JSON for callers that take it as that: it is not restored."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} is not JSON")
    return dump(mode="json")


def dump(value: Any) -> Any:
    """A model as JSON that its class restores; raises NotImplementedError if it would be another value.

    Under its fields' aliases, as its class reads them. Where one is written under another name than it is
    read, under the fields' own names.
    """
    if not hasattr(type(value), "model_validate_json"):
        return dump_plainly(value)
    different: str | None = None
    for by_alias in (True, False):
        dumped = value.model_dump(mode="json", by_alias=by_alias, round_trip=True)
        found = _difference(value, dumped)
        if found is None:
            return dumped
        different = different or found
    raise NotImplementedError(different)


def dump_quickly(value: Any) -> Any:
    """A model as JSON, the same each time; the caller that stores it compares what comes back."""
    if not hasattr(type(value), "model_validate_json"):
        return dump_plainly(value)
    is_same = _reads_what_it_writes(type(value))  # type: ignore[arg-type]
    return value.model_dump(mode="json", by_alias=is_same, round_trip=True)


@lru_cache(maxsize=256)
def _reads_what_it_writes(model: type) -> bool:
    """Whether every field is read under the alias that it is written under."""
    fields: dict[str, Any] = model.model_fields  # type: ignore[attr-defined]
    return all(field.validation_alias == field.serialization_alias for field in fields.values())


def complaint(wanted: type, error: Exception) -> str:
    """What does not fit a model, by its fields' names and without any value."""
    try:
        found = error.errors(include_input=False, include_url=False, include_context=False)  # type: ignore[attr-defined]
        places = [f"{'.'.join(map(str, one['loc'])) or '$'}: {one['type']}" for one in found[:4]]
    except Exception:  # noqa: BLE001  no error of pydantic's
        places = [type(error).__name__]
    return f"{wanted.__name__} does not take it ({'; '.join(places)})"


def restore(wanted: type, value: Any) -> Any:
    """A value of a class from its JSON, under aliases or under its fields' own names."""
    read = getattr(wanted, "model_validate_json", None)
    if read is not None:  # from text, since a strict model takes a time as text only from there
        return read(msgspec.json.encode(value), **_either_name(wanted))
    validate = getattr(wanted, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{wanted.__name__} cannot be restored from JSON")
    return validate(value)


@lru_cache(maxsize=256)
def _either_name(model: type) -> dict[str, bool]:
    """How a field is found under both of its names, where this version of pydantic can do that."""
    read: Any = model.model_validate_json  # type: ignore[attr-defined]
    is_known = "by_name" in inspect.signature(read).parameters
    return {"by_alias": True, "by_name": True} if is_known else {}


def _difference(value: Any, dumped: Any) -> str | None:
    """What would be different about a model that was stored like this; None if nothing."""
    try:
        restored = restore(type(value), dumped)
    except Exception:  # noqa: BLE001  validators are the user's, and may raise anything
        return f"{type(value).__name__} does not take its own JSON back"
    for name, field in type(value).model_fields.items():
        if not field.exclude and not _is_same(getattr(restored, name), getattr(value, name)):
            return f"its field {name} would come back as another value"
    return None if _is_same(restored.model_extra, value.model_extra) else "its extra fields would change"


def _is_same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001  what cannot be compared cannot be said to be the same
        return False
