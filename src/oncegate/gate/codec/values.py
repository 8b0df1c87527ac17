"""How outcomes and step results are stored: JSON, with dataclasses, pydantic and msgspec values restored.

The type comes from a `returns=` or the function's return annotation. Without one, what is stored is plain
JSON, and the first caller gets the same plain value that every replay will get. Never pickle.
"""

from __future__ import annotations

import inspect
import math
import re
import typing
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import UnionType
from typing import Any, Final

import msgspec

from oncegate.errors import UsageError
from oncegate.gate.codec import models
from oncegate.gate.codec.introspection import remembered

_PLAIN: Final = msgspec.json.Decoder()
_UNTYPED: Final = (Any, None, type(None), inspect.Signature.empty, object)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=models.dump_plainly)
_PACKER: Final = msgspec.msgpack.Encoder(enc_hook=models.dump_plainly)
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")  # a double whose exponent is all ones
_RESTORABLE: Final = msgspec.json.Encoder(enc_hook=models.dump)


def attested(resource: str | None) -> bytes:
    """What is stored as a step's result when a person says that it happened, and with which resource."""
    return b"null" if resource is None else _ENCODER.encode({"id": resource})


class AnnotationWarning(UserWarning):
    """A type that an annotation names is not known at run time, or is missing where it is needed."""


class Codec:
    """Stores values of one declared type, or plain JSON.

    Where what is declared can be restored for some values only, each is looked at before it is stored.
    """

    __slots__ = ("_decoder", "_encoder", "_is_doubtful", "is_typed")

    def __init__(self, declared: Any = None, *, is_doubtful: bool = False) -> None:
        self.is_typed = not any(declared is untyped for untyped in _UNTYPED)
        self._encoder = _RESTORABLE if self.is_typed else _ENCODER
        self._decoder: Any = _decoder_of(declared) if self.is_typed else _PLAIN
        self._is_doubtful = is_doubtful or isinstance(self._decoder, _OneOf)

    @property
    def is_plain(self) -> bool:
        """Whether no type was declared."""
        return not self.is_typed and not self._is_doubtful

    def encode(self, value: Any) -> bytes:
        """Turns a value into JSON; raises UsageError if it cannot be stored, or would come back changed."""
        try:
            body = self._encoder.encode(value)
            if value is not None and b"null" in body:
                _refuse_not_finite(value)
        except Exception as error:
            raise UsageError(
                f"a {type(value).__name__} cannot be stored ({error}); return JSON, a dataclass, or a "
                "pydantic or msgspec model"
            ) from error
        if self._is_doubtful and not self.comes_back(value, body):
            raise UsageError(
                f"a {type(value).__name__} cannot be stored (it would come back as another type than was "
                "declared, since its JSON does not tell which it was); declare one type, or returns=dict"
            )
        return body

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


class UntypedCodec(Codec):
    """Plain JSON for a function that declares no type; warns once if its callers get another type."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name: str | None = name

    def as_replayed(self, value: Any, body: bytes) -> Any:
        """What the first caller gets: the same as every replay will."""
        shown = self.decode(body)
        if type(value) is not type(shown) and self._name is not None:
            name, self._name = self._name, None
            warnings.warn(
                f"{name} returned a {type(value).__name__} and declares no type: its callers get a"
                f" {type(shown).__name__}; annotate it: -> {type(value).__name__}",
                AnnotationWarning,
                stacklevel=2,
            )
        return shown


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
        return Codec(is_doubtful=True)


def _decoder_of(declared: Any) -> Any:
    try:
        return msgspec.json.Decoder(declared, dec_hook=models.restore)
    except TypeError:
        if typing.get_origin(declared) not in (typing.Union, UnionType):
            raise
        return _OneOf(typing.get_args(declared))


class _OneOf:
    """Restores a value of one of several classes: of the first that gives the very same JSON again."""

    def __init__(self, members: tuple[Any, ...]) -> None:
        self._decoders = [msgspec.json.Decoder(member, dec_hook=models.restore) for member in members]

    def decode(self, body: bytes) -> Any:
        """Raises ValueError if it is none of them."""
        for decoder in self._decoders:
            with suppress(Exception):
                value = decoder.decode(body)
                if _RESTORABLE.encode(value) == body:
                    return value
        raise ValueError("it is of none of the declared types")


def _refuse_not_finite(value: Any) -> None:
    """JSON has no such number, and null is written in its place.

    MessagePack has: where no such bytes are in it there is none, and only else the value is gone through.
    """
    with suppress(Exception):  # of a whole number that is too large for it, say
        if _NOT_FINITE.search(_PACKER.encode(value)) is None:
            return
    rest = [msgspec.to_builtins(value, enc_hook=models.dump_plainly)]
    while rest:
        one = rest.pop()
        if isinstance(one, float) and not math.isfinite(one):
            raise ValueError("a number in it is not finite, and would come back as null")
        if isinstance(one, dict):
            rest += one.values()
        elif isinstance(one, (list, tuple, set, frozenset)):
            rest += one
