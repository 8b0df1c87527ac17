"""Plain functions under `gate.once`: a call's arguments are the event, a repeat gets the recorded value.

Only `gate.py` makes them. Nothing is decided here: the function becomes a handler, its calls arrivals.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from oncegate.errors import BadTemplate, ConfigError, EventNotStorable
from oncegate.gate.admission import Admission
from oncegate.gate.codec.introspection import is_async, refuse_generator
from oncegate.gate.codec.values import declared_return
from oncegate.gate.registration import Declarations
from oncegate.model.canonical import canonical_json
from oncegate.model.surface import OnBusy
from oncegate.model.template import KeyTemplate

# What a module is called in the program that was started with it, and in the processes that this starts.
_STARTED: Final = ("__main__", "__mp_main__")
# Module names that say nothing of the program: what is started from a prompt, a pipe or a notebook, and
# what frameworks and templates call the file that every program has.
_COMMON: Final = frozenset(
    ("__main__", "__mp_main__", "main", "app", "application", "api", "src", "run", "script", "server",
     "service", "worker", "wsgi", "asgi", "cli", "manage", "index", "lambda_function", "function_app")
)  # fmt: skip
_EMPTY: Final[dict[Any, Any]] = {inspect.Parameter.VAR_POSITIONAL: (), inspect.Parameter.VAR_KEYWORD: {}}


def surface_of(function: Callable[..., Any]) -> str:
    """What a function's surface is called: the same whether its module was started or imported.

    The key has the name in it: another name for the same function would be a second effect. Raises
    ConfigError where many programs have a module of that name: two functions would answer for each other.
    """
    module = _module_of(function)
    if all(part.lower() in _COMMON for part in module.split(".")):
        raise ConfigError(
            f"{module}.{function.__qualname__} cannot be the name of a surface: many programs have a module"
            f" {module}, and on one ledger their functions would answer for each other. Give it a name:"
            f" @gate.once(name='orders.{function.__name__}', …)"
        )
    return f"{module}.{function.__qualname__}"


def origin_of(function: Callable[..., Any]) -> str:
    """Where a function is, the same on every machine: its module and its own name."""
    return f"{_module_of(function)}:{function.__qualname__}"


def _module_of(function: Callable[..., Any]) -> str:
    module: str = function.__module__
    if module not in _STARTED:
        return module
    there = getattr(function, "__globals__", {})
    spec, file = there.get("__spec__"), there.get("__file__")
    if spec is not None:
        return str(spec.name)
    return Path(file).stem if file else module


class Admits(Protocol):
    """What a wrapped function needs of its gate."""

    @property
    def handler(self) -> Callable[..., Callable[[Any], Any]]:
        """Registers a handler."""

    @property
    def engine(self) -> Declarations:
        """Keeps the surfaces."""

    async def admit(self, surface: str, event: Any) -> Admission:
        """Admits an event from a task."""

    def admit_sync(self, surface: str, event: Any) -> Admission:
        """Admits an event from a thread."""


class OnceFunction:
    """A function wrapped by `gate.once`: its arguments are the event."""

    def __init__(
        self,
        gate: Admits,
        function: Callable[..., Any],
        name: str | None,
        options: dict[str, Any],
    ) -> None:
        if not hasattr(function, "__qualname__"):
            raise ConfigError(
                f"gate.once wraps a function; a {type(function).__name__} is none: call it in one"
            )
        refuse_generator(function)
        if options.get("on_busy") == OnBusy.ACKNOWLEDGE.value:
            raise ConfigError("gate.once returns a value, and an acknowledgement has none; on_busy='wait'")
        self._gate = gate
        self._function = function
        self._signature = inspect.signature(function)
        self._surface = surface = name or surface_of(function)
        options.setdefault("returns", declared_return(function))
        # Whoever calls is told at once and can call again; a release would return to nobody.
        options.setdefault("on_conflict", "refuse")
        self._takes_key = "idempotency_key" in self._signature.parameters
        self._check_key(
            KeyTemplate.parse(options["key"], allow_transport=options.get("allow_transport", ()))
        )
        gate.handler(surface, **options)(self._as_handler())
        gate.engine.amend(surface, self._defaults(), origin_of(function))
        self.wrapper = self._make_wrapper()

    def _check_key(self, template: KeyTemplate) -> None:
        """Every field of the key begins with a parameter's name: an event has nothing else."""
        names = [name for name in self._signature.parameters if name != "idempotency_key"]
        for field in template.fields:
            if field.path[0] not in names:
                raise BadTemplate(
                    f"key={template.text!r}: {self._function.__name__} has no parameter {field.path[0]!r}; "
                    f"{self._hint(names, field.path[0])}"
                )

    def _hint(self, names: list[str], wanted: str) -> str:
        for name in names:
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                return f"for one of **{name} write {{{name}.{wanted}}}"
        return f"its parameters are {', '.join(names) or 'none'}"

    def _defaults(self) -> dict[str, bytes]:
        """What absent arguments stand for: a parameter that is added later changes no call made before."""
        found = {}
        for name, parameter in self._signature.parameters.items():
            value = _EMPTY.get(parameter.kind, parameter.default)
            if value is not parameter.empty:
                with suppress(EventNotStorable):  # then no call with it can be stored either
                    found[name] = canonical_json(value)
        return found

    def _as_handler(self) -> Callable[..., Any]:
        """The function as a handler of one argument, the mapping of its own arguments."""
        function = self._function

        def call(event: Any, **key: str) -> Any:
            bound = self._signature.bind_partial()
            bound.arguments.update(event, **key)
            return function(*bound.args, **bound.kwargs)

        def call_plainly(event: Any) -> Any:
            return call(event)

        def call_with_key(event: Any, idempotency_key: str = "") -> Any:
            return call(event, idempotency_key=idempotency_key)

        async def call_async(event: Any) -> Any:
            return await call(event)

        async def call_async_with_key(event: Any, idempotency_key: str = "") -> Any:
            return await call(event, idempotency_key=idempotency_key)

        if is_async(function):
            handler: Callable[..., Any] = call_async_with_key if self._takes_key else call_async
        else:
            handler = call_with_key if self._takes_key else call_plainly
        handler.__name__ = function.__name__
        return handler

    def _event(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """The call's arguments by name; a call that Python would refuse is refused here."""
        if self._takes_key:
            keywords = {"idempotency_key": "", **keywords}
        bound = self._signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        event = dict(bound.arguments)
        event.pop("idempotency_key", None)
        return event

    def _make_wrapper(self) -> Callable[..., Any]:
        gate, surface = self._gate, self._surface
        if is_async(self._function):

            @functools.wraps(self._function)
            async def run_async(*arguments: Any, **keywords: Any) -> Any:
                return (await gate.admit(surface, self._event(arguments, keywords))).result()

            return run_async

        @functools.wraps(self._function)
        def run(*arguments: Any, **keywords: Any) -> Any:
            return gate.admit_sync(surface, self._event(arguments, keywords)).result()

        return run
