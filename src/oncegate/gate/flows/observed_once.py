"""What a handler is given while its surface observes: every call is made, nothing is remembered.

The key is the event's own, so that a downstream that honours it still does. Business writes belong to the
ledger's transaction, and there is none here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from inspect import isawaitable
from typing import Any, NoReturn

from oncegate.errors import UsageError
from oncegate.gate.codec.callable_info import callee_of
from oncegate.gate.flows.key_injection import KEY_HEADER, current_step_key, put_back, with_key
from oncegate.model.keys import Key
from oncegate.model.trace import Context, headers_of
from oncegate.store import Statement


class ObservedOnce:
    """Stands in for `Once`."""

    attempt = 1

    def __init__(self, key: Key, context: Context | None) -> None:
        self._key, self._context = key, context
        self.resource: str | None = None

    @property
    def key(self) -> str:
        """The key to pass on: inside an effect that effect's own, elsewhere the event's."""
        return current_step_key.get() or self._key.text

    @property
    def headers(self) -> dict[str, str]:
        """The key as the header that downstreams know, and the trace context if the event had one."""
        return {KEY_HEADER: self.key, **({} if self._context is None else headers_of(self._context))}

    def effect(
        self,
        downstream: object,
        function: Callable[..., Any],
        /,
        *arguments: Any,
        name: str | None = None,
        **keywords: Any,
    ) -> Any:
        """Calls the function."""
        callee = callee_of(function)
        key = self._key.step(name or callee.step_name)
        _, arguments, keywords = with_key(callee.key_parameters, arguments, keywords, key)
        token = current_step_key.set(key)
        try:
            return function(*arguments, **keywords)
        finally:
            put_back(current_step_key, token)

    def step(self, name: str, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        """Calls the function."""
        return self.effect(None, function, *arguments, name=name, **keywords)

    def write(self, name: str, writes: Sequence[Statement]) -> Any:
        """Cannot be done."""
        _refuse_writes()

    def commit(self, *, resource: str | None = None, writes: Sequence[Statement] = (), **more: Any) -> Any:
        """Takes the resource; what else belongs to an outcome cannot be committed with one."""
        if writes or more.keys() - {"outcome"}:
            _refuse_writes()
        self.resource = self.resource if resource is None else str(resource)[:200]
        return _NoBlock()

    @property
    def tx(self) -> NoReturn:
        """There is none."""
        _refuse_writes()


class AsyncObservedOnce(ObservedOnce):
    """Stands in for `AsyncOnce`."""

    async def _awaited(self, function: Callable[..., Any], name: str, *rest: Any, **keywords: Any) -> Any:
        callee = callee_of(function)
        key = self._key.step(name or callee.step_name)
        _, arguments, keywords = with_key(callee.key_parameters, rest, keywords, key)
        token = current_step_key.set(key)
        try:
            answer = function(*arguments, **keywords)
            return await answer if isawaitable(answer) else answer
        finally:
            put_back(current_step_key, token)

    def effect(
        self,
        downstream: object,
        function: Callable[..., Any],
        /,
        *arguments: Any,
        name: str | None = None,
        **keywords: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Calls the function, when it is awaited."""
        return self._awaited(function, name or "", *arguments, **keywords)


class _NoBlock:
    """What `commit` returns: awaiting it does nothing, and a block has no transaction."""

    def __await__(self) -> Any:
        return iter(())

    def __enter__(self) -> NoReturn:
        _refuse_writes()

    def __exit__(self, *_: object) -> None:
        """Is never reached."""

    __aenter__, __aexit__ = __enter__, __exit__


def _refuse_writes() -> NoReturn:
    raise UsageError(
        "the surface observes, and this handler writes in the ledger's transaction: it cannot run without"
        " the gate; switch it on: oncegate surfaces switch NAME on --reason WHY"
    )
