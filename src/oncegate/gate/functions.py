"""Plain functions under `gate.once`: a call's arguments are the event, a repeat gets the recorded value.

Only `gate.py` makes them. Nothing is decided here: the function becomes a handler, its calls arrivals.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

from oncegate.errors import BadTemplate, ConfigError, EventNotStorable, OncegateError
from oncegate.gate.admission import Admission
from oncegate.gate.codec.declared_types import resolved
from oncegate.gate.codec.introspection import is_async, refuse_generator
from oncegate.gate.codec.parameters import KEY_PARAMETER, Parameters, is_json
from oncegate.gate.codec.reading import Reader
from oncegate.gate.codec.values import declared_return
from oncegate.gate.driver.drivers import Driver
from oncegate.gate.driver.requests import Flow
from oncegate.gate.runtime.tracing import current_claim
from oncegate.gate.surface import Surface
from oncegate.model.surface import OnBusy
from oncegate.model.surface_decisions import SurfaceMode
from oncegate.model.template import KeyTemplate

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
# What a module is called in the program that was started with it, and in the processes that this starts.
_STARTED: Final = ("__main__", "__mp_main__")
# Module names that say nothing of the program: what is started from a prompt, a pipe or a notebook, and
# what frameworks and templates call the file that every program has.
_COMMON: Final = frozenset(
    ("__main__", "__mp_main__", "main", "app", "application", "api", "src", "run", "script", "server",
     "service", "worker", "wsgi", "asgi", "cli", "manage", "index", "lambda_function", "function_app")
)  # fmt: skip


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


class AdmitsCalls(Protocol):
    """What a wrapped function needs of its gate's engine."""

    @property
    def driver(self) -> Driver:
        """Runs flows."""

    def surface(self, name: str) -> Surface:
        """Finds a surface."""

    @property
    def look(self) -> Callable[..., Admission | Flow[Admission]]:
        """Begins to admit an event."""


class Amends(Protocol):
    """Where a wrapped function's surface is declared."""

    def amend(self, name: str, found: Parameters, origin: str) -> None:
        """Adds to a surface what its function tells."""


class Admits(Protocol):
    """What a wrapped function needs of its gate."""

    @property
    def handler(self) -> Callable[..., Callable[[Any], Any]]:
        """Registers a handler."""

    @property
    def _declarations(self) -> Amends:
        """Keeps the surfaces."""

    @property
    def engine(self) -> AdmitsCalls:
        """Admits calls."""

    async def admit(self, surface: str, event: Any) -> Admission:
        """Admits an event from a task."""

    def admit_sync(self, surface: str, event: Any) -> Admission:
        """Admits an event from a thread."""


class InjectedKey:
    """The type of a parameter that gets the key of the call from the gate; callers do not pass it.

    `str(key)` is its text. It is the function's first parameter, or the first one after `self`.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class OnceDecorator(Protocol):
    """What `gate.once(…)` returns: it keeps a function's signature, less a key that the gate gives."""

    @overload
    def __call__(self, function: Callable[Concatenate[InjectedKey, P], R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[S, InjectedKey, P], R], /
    ) -> Callable[Concatenate[S, P], R]: ...

    @overload
    def __call__(self, function: F, /) -> F: ...


class OnceFunction:
    """A function wrapped by `gate.once`: its arguments are the event."""

    def __init__(
        self,
        gate: Admits,
        function: Callable[..., Any],
        name: str | None,
        options: dict[str, Any],
        names: Mapping[str, Any],
    ) -> None:
        _check_function(function)
        if options.get("on_busy") == OnBusy.ACKNOWLEDGE.value:
            raise ConfigError("gate.once returns a value, and an acknowledgement has none; on_busy='wait'")
        self._gate = gate
        self._function = function
        self._signature = inspect.signature(function)
        self._surface = surface = name or surface_of(function)
        self._parameters = Parameters(function, self._signature, options.get("ignore", ()), names)
        self._settle_options(options)
        self._takes_key = KEY_PARAMETER in self._signature.parameters
        self._seen = _without_key(self._signature)
        self._check_key(
            KeyTemplate.parse(options["key"], allow_transport=options.get("allow_transport", ()))
        )
        self._by_place = _by_place(self._seen)
        gate.handler(surface, **options)(self._as_handler())
        gate._declarations.amend(surface, self._parameters, origin_of(function))
        self.wrapper = self._make_wrapper()

    def _settle_options(self, options: dict[str, Any]) -> None:
        """What the function itself says about how it can be called again."""
        options.setdefault("returns", declared_return(self._function))
        # The caller gets the answer at once and can call again; a release would have no caller.
        options.setdefault("on_conflict", "refuse")
        left_out = self._parameters.left_out
        if left_out and not isinstance(options.get("ignore", ()), str):
            options["ignore"] = [one for one in options.get("ignore", ()) if one not in left_out]
        brought = ", ".join(self._parameters.caller_brings)
        if not brought:
            return
        if options.get("mode") == "accept" or options.get("caller_retries") is False:
            raise ConfigError(
                f"{self._function.__name__} cannot run without {brought}, which is not stored: only its"
                " caller can run it. Give the parameter a default, make what it needs inside, or leave"
                " mode= and caller_retries= out"
            )
        options["caller_retries"] = True

    def _check_key(self, template: KeyTemplate) -> None:
        """Every field of the key begins with a parameter's name: an event has nothing else."""
        names = [name for name in self._signature.parameters if name != KEY_PARAMETER]
        for field in template.fields:
            if field.path[0] not in names:
                raise BadTemplate(
                    f"key={template.text!r}: {self._function.__name__} has no parameter {field.path[0]!r}; "
                    f"{self._hint(names, field.path[0])}"
                )
            self._parameters.check_key(template.text, field)

    def _hint(self, names: list[str], wanted: str) -> str:
        for name in names:
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                return f"for one of **{name} write {{{name}.{wanted}}}"
        return f"its parameters are {', '.join(names) or 'none'}"

    def _as_handler(self) -> Callable[..., Any]:
        """The function as a handler of one argument, the mapping of its own arguments."""
        function = self._function
        annotation = getattr(self._signature.parameters.get(KEY_PARAMETER), "annotation", None)
        is_injected = annotation is not None and resolved(function, annotation) is InjectedKey
        kinds = {one.kind for one in self._signature.parameters.values()}
        names = self._signature.parameters.keys()
        is_by_name = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}

        def call(event: Any, **key: str) -> Any:
            if is_injected:
                key = {KEY_PARAMETER: InjectedKey(key[KEY_PARAMETER])}  # type: ignore[dict-item]
            if is_by_name and event.keys() <= names:  # an earlier version may have had more of them
                return function(**event, **key)
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

    def _arguments(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """The call's arguments by name; a call that Python would refuse is refused here."""
        if not keywords and len(arguments) == len(self._by_place):  # most calls, several times as quick
            return dict(zip(self._by_place, arguments, strict=True))
        if self._takes_key:
            keywords = {name: value for name, value in keywords.items() if name != KEY_PARAMETER}
        bound = self._seen.bind(*arguments, **keywords)
        bound.apply_defaults()
        return dict(bound.arguments)

    def _look(self, arguments: dict[str, Any]) -> Admission | Flow[Admission]:
        """Begins to admit a call whose arguments are not all plain JSON."""
        try:
            event = self._parameters.event(arguments)
        except EventNotStorable:
            if not self._is_observed():
                raise
            event = arguments  # it cannot be recorded, and runs all the same
        read: Reader = partial(self._read, arguments)
        return self._gate.engine.look(self._surface, event, None, None, None, read=read)

    def _read(self, arguments: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
        """What the function is called with; as without a gate where it only observes."""
        return arguments if self._is_observed() else self._parameters.checked(event, arguments)

    def _is_observed(self) -> bool:
        return self._gate.engine.surface(self._surface).mode is SurfaceMode.OBSERVE

    def _make_wrapper(self) -> Callable[..., Any]:
        gate, surface, is_plain = self._gate, self._surface, self._parameters.is_plain

        async def run_async(*arguments: Any, **keywords: Any) -> Any:
            given = self._arguments(arguments, keywords)
            try:
                if is_plain:
                    return (await gate.admit(surface, given)).result()
                return (await finish_async(gate.engine, self._look(given))).result()
            except EventNotStorable as error:
                raise self._explained(error, given) from error.__cause__

        def run(*arguments: Any, **keywords: Any) -> Any:
            given = self._arguments(arguments, keywords)
            try:
                if is_plain:
                    return gate.admit_sync(surface, given).result()
                return finish(gate.engine, self._look(given)).result()
            except EventNotStorable as error:
                raise self._explained(error, given) from error.__cause__

        wrapper = functools.wraps(self._function)(run_async if is_async(self._function) else run)
        if self._takes_key:
            _hide_key(wrapper, self._seen)
        return wrapper

    def _explained(self, error: EventNotStorable, given: dict[str, Any]) -> EventNotStorable:
        """Says which parameter cannot be stored and what to write; an error of the function's own stays."""
        found = re.match(r"\$\.(\w+)", str(error))
        if found is None or is_json(given.get(found[1])):
            return error
        name, annotation = found[1], self._signature.parameters[found[1]].annotation
        is_missing = annotation is inspect.Parameter.empty
        what = "annotate it with its type" if is_missing else "import its type at run time"
        return EventNotStorable(
            f"{error}. {self._function.__name__}, parameter {name}: {what} (a dataclass, Decimal, UUID, …);"
            f" where it is no content (a session, a client), leave it out: ignore=[{name!r}]"
        )


def _check_function(function: Callable[..., Any]) -> None:
    if isinstance(function, (classmethod, staticmethod)):
        kind = type(function).__name__
        raise ConfigError(f"write @{kind} above @gate.once(…): gate.once wraps the function itself")
    if not hasattr(function, "__qualname__"):
        raise ConfigError(
            f"gate.once wraps a function; a {type(function).__name__} is none: call it in one"
        )
    refuse_generator(function)


def _by_place(signature: inspect.Signature) -> tuple[str, ...]:
    """The names of a function's arguments where all of them can be given by place; else none."""
    found = signature.parameters.values()
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in found):
        return ()
    return tuple(signature.parameters)


def _without_key(signature: inspect.Signature) -> inspect.Signature:
    """The signature as callers see it: the key is the gate's to give."""
    seen = [one for one in signature.parameters.values() if one.name != KEY_PARAMETER]
    return signature if len(seen) == len(signature.parameters) else signature.replace(parameters=seen)


def _hide_key(wrapper: Any, seen: inspect.Signature) -> None:
    wrapper.__signature__ = seen
    wrapper.__annotations__ = {
        name: one for name, one in wrapper.__annotations__.items() if name != KEY_PARAMETER
    }


def finish(engine: AdmitsCalls, found: Admission | Flow[Admission]) -> Admission:
    """Runs the rest of what `look` began, from a thread."""
    if isinstance(found, Admission):
        return found
    outer = current_claim.get()
    try:
        return engine.driver.run(found)
    except OncegateError as error:
        error.passed_into = current_claim.get()
        raise
    except BaseException:  # an interrupt may come between setting the claim and the block that resets it
        current_claim.set(outer)
        raise


async def finish_async(engine: AdmitsCalls, found: Admission | Flow[Admission]) -> Admission:
    """Runs the rest of what `look` began, from a task."""
    if isinstance(found, Admission):
        return found
    try:
        return await engine.driver.run_async(found)
    except OncegateError as error:
        error.passed_into = current_claim.get()
        raise
