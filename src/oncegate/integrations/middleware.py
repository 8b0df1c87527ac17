"""What the `Idempotency-Key` middlewares share: their settings, and how a request goes through the gate.

The edges (`asgi`, `wsgi`) read requests, call the application and write responses. Must never ask the gate
for one caller's key in another's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from oncegate.errors import OncegateError
from oncegate.gate.admission import Admission
from oncegate.gate.facade import GateOnStore
from oncegate.gate.options import Duration, MiddlewareOptions
from oncegate.gate.surface import Downstream
from oncegate.integrations.policy import (
    ATTEMPTS_MAX,
    BODY_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    KeyedExchange,
    KeyPolicy,
    Undecided,
    answer_to,
    answer_to_error,
    caller_or_problem,
    current,
    register,
)
from oncegate.integrations.problems import Problem
from oncegate.integrations.replies import Reply
from oncegate.model.surface_decisions import SurfaceMode

App = TypeVar("App")
Request = TypeVar("Request")


class Middleware(Generic[App, Request]):
    """An application behind the gate; each edge gives the rest."""

    def __init__(
        self,
        app: App,
        *,
        gate: GateOnStore,
        caller: Callable[[Request], str | None],
        surface: str = "http",
        applies: Callable[[Request], bool] | None = None,
        methods: Collection[str] = ("POST", "PATCH"),
        required: bool = True,
        bare_keys: bool = False,
        body_bytes_max: int = BODY_BYTES_MAX,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        keep_headers: Collection[str] = (),
        retry_on_5xx: bool | Collection[int] = False,
        uses_once: bool = False,
        downstream: Downstream | None = None,
        retention: Duration = "30d",
        attempts_max: int = ATTEMPTS_MAX,
        **options: Unpack[MiddlewareOptions],
    ) -> None:
        self._app, self._gate, self._caller, self._surface = app, gate, caller, surface
        self._applies = applies or (lambda request: True)
        self._policy = KeyPolicy(
            methods=methods,
            required=required,
            bare_keys=bare_keys,
            body_bytes_max=body_bytes_max,
            response_bytes_max=response_bytes_max,
            keep_headers=keep_headers,
            retry_on_5xx=retry_on_5xx,
        )
        register(
            gate,
            surface,
            self._handler(uses_once),
            downstream=downstream,
            retention=retention,
            attempts_max=attempts_max,
            options=options,
        )

    @property
    def _observes(self) -> bool:
        """Whether the application must see every request, also one that the gate would refuse."""
        return self._gate.engine.surface(self._surface).mode is SurfaceMode.OBSERVE

    def _is_refused(self, key: str | Problem, request: Request) -> bool:
        """Whether the gate would answer a request without calling the application."""
        return isinstance(key, Problem) or isinstance(caller_or_problem(self._caller(request)), Problem)

    def _handler(self, uses_once: bool) -> Callable[..., Any]:
        """The gate's handler: calls the application for the request that is being served."""
        raise NotImplementedError


class Passage:
    """One request's way through the gate, as a with block: what the gate says or raises is its answer.

    Inside the block the handler finds the request. An error that is no answer goes on to the caller.
    """

    def __init__(self, request: Any, *, is_observed: bool = False) -> None:
        self._exchange = KeyedExchange(request, is_observed=is_observed)
        self._answer: Reply | Problem | None = None

    def __enter__(self) -> Self:
        self._token = current.set(self._exchange)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        current.reset(self._token)
        if not isinstance(error, (OncegateError, Undecided)):
            return False
        self._answer = answer_to_error(error, self._exchange)
        if self._answer is None:
            raise error.__cause__ or error from None
        return True

    def conclude(self, admission: Admission) -> None:
        """Takes what the gate said."""
        self._answer = answer_to(admission, self._exchange)

    @property
    def answer(self) -> Reply | Problem:
        """What the caller gets."""
        if self._answer is None:
            raise RuntimeError("the request has not been through the gate")
        return self._answer
