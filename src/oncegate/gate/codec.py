"""How outcomes and step results are stored: JSON, with dataclasses, pydantic and msgspec values restored.

The type comes from a `returns=` or the function's return annotation. Without one, what is stored is plain
JSON, and the first caller gets the same plain value that every replay will get. Never pickle.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from oncegate.errors import UsageError
from oncegate.gate.introspection import remembered

_PLAIN: Final = msgspec.json.Decoder()
_UNTYPED: Final = (Any, None, type(None), inspect.Signature.empty, object)


def _encode_foreign(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} is not JSON")
    return dump(mode="json")


def _decode_foreign(wanted: type, value: Any) -> Any:
    validate = getattr(wanted, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{wanted.__name__} cannot be restored from JSON")
    return validate(value)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_encode_foreign)


def attested(resource: str | None) -> bytes:
    """What is stored as a step's result when a person says that it happened, and with which resource."""
    return b"null" if resource is None else _ENCODER.encode({"id": resource})


class Codec:
    """Stores values of one declared type, or plain JSON."""

    __slots__ = ("_decoder", "is_typed")

    def __init__(self, declared: Any = None) -> None:
        self.is_typed = not any(declared is untyped for untyped in _UNTYPED)
        self._decoder: Any = (
            msgspec.json.Decoder(declared, dec_hook=_decode_foreign) if self.is_typed else _PLAIN
        )

    def encode(self, value: Any) -> bytes:
        """Turns a value into JSON; raises UsageError if it cannot be stored."""
        try:
            return _ENCODER.encode(value)
        except Exception as error:
            raise UsageError(
                f"a {type(value).__name__} cannot be stored ({error}); return JSON, a dataclass, or a "
                "pydantic or msgspec model"
            ) from error

    def decode(self, body: bytes) -> Any:
        """Turns stored JSON back into a value of the declared type, or plain JSON if it does not fit."""
        try:
            return self._decoder.decode(body)
        except (ValueError, NotImplementedError):
            return _PLAIN.decode(body)  # an annotation that is not quite true must not lose an outcome

    def decode_attested(self, resource: str) -> Any:
        """What a call returned, where all that is known is a person's word that it got this resource.

        An object with that id, or the id itself, whichever is of the declared type.
        """
        number = (resource.encode(),) if resource.isascii() and resource.isdigit() else ()
        for body in (attested(resource), _ENCODER.encode(resource), *number):
            with suppress(ValueError, NotImplementedError):
                return self._decoder.decode(body)
        return _PLAIN.decode(attested(resource))

    def as_replayed(self, value: Any, body: bytes) -> Any:
        """What the first caller gets: the same as every replay will."""
        return self.decode(body)

    def comes_back(self, value: Any, body: bytes) -> bool:
        """Tells whether storing loses nothing: neither the value nor its type."""
        restored = self.decode(body)
        return type(restored) is type(value) and bool(restored == value)


@remembered
def codec_of(function: Callable[..., Any]) -> Codec:
    """Finds the codec for what a function returns, from its annotation."""
    return declared_codec(declared_return(function))


def declared_return(function: Callable[..., Any]) -> Any:
    """The type a function is annotated to return, or None; other annotations need not be resolvable."""
    target = inspect.unwrap(getattr(function, "func", function))
    annotations = getattr(target, "__annotations__", None) or {}

    def shim() -> None: ...

    shim.__annotations__ = {"return": annotations.get("return")}
    try:
        return typing.get_type_hints(shim, globalns=getattr(target, "__globals__", {})).get("return")
    except Exception:  # noqa: BLE001  an annotation may be any expression; then the value is plain JSON
        return None


def declared_codec(declared: Any) -> Codec:
    """Makes the codec of a type, or the plain one where the type cannot be restored from JSON."""
    try:
        return Codec(declared)
    except (TypeError, RuntimeError):
        return Codec()
