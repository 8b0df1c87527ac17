"""Spans for OpenTelemetry: around an admission, and in it around reserving, each call and settling.

Needs `pip install 'oncegate[otel]'`. A gate that `trace` was not called on does nothing for it at all.
Spans carry the surface, the verdict and the key's digest; never a value of the event.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from oncegate.commit.operations import Operation, Reserve
from oncegate.errors import ConfigError
from oncegate.gate.admission import Admission
from oncegate.gate.codec.introspection import name_of
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.gate.facade import GateOnStore

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_HINT: Final = "spans need their library: pip install 'oncegate[otel]'"


def trace(gate: GateOnStore, tracer: Tracer | None = None) -> None:
    """Makes spans of everything that passes the gate from now on."""
    chosen = tracer or _library().get_tracer("oncegate")
    gate.engine.wrap_flows(lambda flow: traced(flow, chosen))


def traced(flow: Flow[Any], tracer: Tracer) -> Flow[Any]:
    """The same flow, with a span around it and one around each thing it asks for."""
    answer: Any = None
    error: BaseException | None = None
    with tracer.start_as_current_span(f"oncegate.{_name(flow)}") as span:
        while True:
            try:
                request = flow.send(answer) if error is None else flow.throw(error)
            except StopIteration as stop:
                _tell_verdict(span, stop.value)
                return stop.value
            with _around(request, span, tracer):
                try:
                    answer, error = (yield request), None
                except GeneratorExit:
                    flow.close()
                    raise
                except BaseException as raised:  # noqa: BLE001  the flow decides what every error means
                    answer, error = None, raised


def _name(flow: Flow[Any]) -> str:
    return str(getattr(flow, "__name__", "flow")).removesuffix("_flow")


def _around(request: Any, whole: Span, tracer: Tracer) -> AbstractContextManager[Any]:
    if isinstance(request, Invoke):
        if request.where is not Where.CALL:
            return nullcontext()
        return tracer.start_as_current_span(f"oncegate.call {name_of(request.function)}")
    if isinstance(request, Operation):
        if isinstance(request, Reserve):
            whole.set_attribute("oncegate.surface", request.request.surface)
            whole.set_attribute("oncegate.key", request.request.key.hex())
        return tracer.start_as_current_span(f"oncegate.{type(request).__name__.lower()}")
    return nullcontext()


def _tell_verdict(span: Span, value: Any) -> None:
    if isinstance(value, Admission):
        span.set_attribute("oncegate.verdict", value.verdict.value)
        span.set_attribute("oncegate.key", value.key)


def _library() -> Any:
    try:
        from opentelemetry import trace as library
    except ModuleNotFoundError as error:
        raise ConfigError(_HINT) from error
    return library
