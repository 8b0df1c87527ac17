"""Registering surfaces and downstreams: mistakes are found at the start and named."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from oncegate import ConfigError, Gate, StoreUnavailable, UsageError, Verdict
from oncegate.errors import BadDuration, BadTemplate, UnknownSurface
from oncegate.model.downstream import Promise
from tests.support.gates import Ledger, Style

EVENT = {"id": "N-1"}


def handle(event):
    """Does nothing."""


def test_an_unknown_surface_is_named_with_those_that_exist(ledger: Ledger, style: Style) -> None:
    """The message helps to find the spelling mistake; nothing is written."""
    ledger.path.unlink()
    gate = ledger.gate()
    style.register(gate, "bookings", handle)
    with pytest.raises(UnknownSurface, match="'bokings'; registered: bookings"):
        style.admit(gate, "bokings", EVENT)
    assert not ledger.path.exists()


@pytest.mark.parametrize("name", [None, 7, b"bookings", ["bookings"]])
def test_a_surface_that_is_named_by_no_text_is_told(ledger: Ledger, style: Style, name: Any) -> None:
    """Such as a setting that is missing."""
    with pytest.raises(UsageError, match="a surface is named by a text, not by a"):
        style.admit(ledger.gate(), name, EVENT)


def test_a_surface_can_be_registered_once(ledger: Ledger, style: Style) -> None:
    """Two handlers for one name would be a matter of import order."""
    gate = ledger.gate()
    style.register(gate, "bookings", handle)
    with pytest.raises(ConfigError, match="'bookings' is registered twice"):
        style.register(gate, "bookings", handle)


def test_the_handler_is_returned_unchanged(ledger: Ledger) -> None:
    """The decorator only registers; the function can still be called and tested by itself."""
    assert ledger.gate().handler("bookings", key="{id}")(handle) is handle


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"key": "no field"}, BadTemplate),
        ({"key": "{message_id}"}, BadTemplate),
        ({"key": "{retry_count}:{id}"}, BadTemplate),
        ({"key": "{id"}, BadTemplate),
        ({"retention": "soon"}, BadDuration),
        ({"retention": "0d"}, ConfigError),
        ({"retention_by_partner": {"acme": "13d"}}, ConfigError),
        ({"retention_by_partner": {" acme": "90d"}}, ConfigError),
        ({"retention_by_partner": "90d"}, ConfigError),
        ({"lease": "0s"}, ConfigError),
        ({"lease": "2h"}, ConfigError),
        ({"time_limit": "-1s"}, ConfigError),
        ({"attempts_max": 0}, ConfigError),
        ({"attempts_max": "3"}, ConfigError),
        ({"attempts_max": 2.5}, ConfigError),
        ({"on_busy": "panic"}, ConfigError),
        ({"skew_max": "0s"}, ConfigError),
        ({"tenant": "a..b"}, ConfigError),
        ({"ignore": ["a..b"]}, ConfigError),
        ({"occurred_at": ""}, ConfigError),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_used_is_refused_when_registering(
    ledger: Ledger, options: dict[str, Any], error: type[Exception]
) -> None:
    """Not when the first event arrives."""
    with pytest.raises(error):
        ledger.gate().handler("bookings", **{"key": "{id}", **options})(handle)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"ignore": "sent_at"}, id="one text for a list of fields"),
        pytest.param({"final_errors": ValueError}, id="one class for a tuple"),
        pytest.param({"final_errors": ("ValueError",)}, id="a text for a class"),
    ],
)
def test_a_list_that_is_none_is_refused_when_registering(ledger: Ledger, options: dict[str, Any]) -> None:
    """`ignore="sent_at"` looks right and would quietly turn every repeat into a conflict."""
    with pytest.raises(ConfigError):
        ledger.gate().handler("bookings", **{"key": "{id}", **options})(handle)


@pytest.mark.parametrize("name", ["", " padded ", "x" * 121, "line\nbreak", "\udcff"])
def test_names_that_cannot_be_shown_are_refused(ledger: Ledger, name: str) -> None:
    """Names of surfaces and downstreams stand on pages and in logs."""
    gate = ledger.gate()
    with pytest.raises(ConfigError, match="cannot be used"):
        gate.handler(name, key="{id}")
    with pytest.raises(ConfigError, match="cannot be used"):
        gate.downstream(name)


@pytest.mark.parametrize(
    "bad",
    [lambda: None, lambda event, once, more: None, lambda *, event: None, lambda event, *, once: None],
    ids=["none", "three", "by name", "once by name"],
)
def test_a_handler_takes_the_event_and_perhaps_once(ledger: Ledger, bad: Any) -> None:
    """Anything else is refused before it could fail at the first event."""
    with pytest.raises(ConfigError, match=r"must take \(event\) or \(event, once\)"):
        ledger.gate().handler("bookings", key="{id}")(bad)


def test_a_handler_that_takes_once_names_its_downstreams_in_its_effects(ledger: Ledger) -> None:
    """`downstream=` is for opaque handlers only."""
    gate = ledger.gate()
    ect = gate.downstream("ect", honours_key="7d")
    with pytest.raises(ConfigError, match=r"once\.effect"):
        gate.handler("bookings", key="{id}", downstream=ect)(lambda event, once: None)


def test_a_downstream_is_declared_once(ledger: Ledger) -> None:
    """Two declarations of one name could promise different things."""
    gate = ledger.gate()
    gate.downstream("ect")
    with pytest.raises(ConfigError, match="declared twice"):
        gate.downstream("ect", honours_key="7d")


@pytest.mark.parametrize("options", [{"honours_key": "a week"}, {"request_life_max": "x"}], ids=str)
def test_a_downstreams_durations_are_checked(ledger: Ledger, options: dict[str, Any]) -> None:
    """A duration that cannot be read is refused."""
    with pytest.raises(BadDuration):
        ledger.gate().downstream("ect", **options)


def test_the_promise_says_which_row_applies(ledger: Ledger) -> None:
    """The product never claims more than the downstream can carry."""
    gate = ledger.gate()
    assert gate.downstream("a", honours_key="7d").promise is Promise.KEY_HONOURED
    assert gate.downstream("b", probe=lambda key: None).promise is Promise.ASKED
    assert gate.downstream("c", honours_key="7d", probe=lambda key: None).promise is Promise.KEY_HONOURED
    assert gate.downstream("d").promise is Promise.AT_MOST_ONCE
    gate.handler("opaque", key="{id}")(handle)
    gate.handler("same", key="{id}", same_database=True)(handle)
    gate.handler("through once", key="{id}")(lambda event, once: None)
    promises = {surface.name: surface.promise for surface in gate.engine.surfaces}
    assert promises["opaque"] == Promise.AT_MOST_ONCE.value
    assert promises["same"] == Promise.SAME_DATABASE.value
    assert promises["through once"].startswith("by downstream")


def test_durations_may_be_given_as_timedeltas(ledger: Ledger, style: Style) -> None:
    """What a setting means does not depend on how it is written."""
    gate = ledger.gate()
    style.register(gate, "bookings", handle, lease=timedelta(minutes=2), retention=timedelta(days=30))
    rule = gate.engine.surface("bookings").rule
    assert (rule.lease, rule.retention) == (timedelta(minutes=2), timedelta(days=30))


def test_a_closed_gate_takes_nothing(ledger: Ledger, style: Style) -> None:
    """I19: no effect without a ledger; closing twice is closing once."""
    gate = ledger.gate()
    runs: list[Any] = []
    style.register(gate, "bookings", runs.append)
    style.admit(gate, "bookings", {"id": "before"})
    gate.close()
    gate.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        style.admit(gate, "bookings", EVENT)
    assert len(runs) == 1


def test_a_gate_closes_itself_after_a_with_block(ledger: Ledger, style: Style) -> None:
    """As files do."""
    with Gate(ledger.url, clock=ledger.clock) as gate:
        style.register(gate, "bookings", handle)
        assert style.admit(gate, "bookings", EVENT).verdict is Verdict.RUN
    with pytest.raises(StoreUnavailable):
        style.admit(gate, "bookings", {"id": "after"})


async def test_a_gate_closes_itself_after_an_async_with_block(ledger: Ledger) -> None:
    """As an async program opens it."""
    async with Gate(ledger.url, clock=ledger.clock) as gate:
        gate.handler("bookings", key="{id}")(handle)
        assert (await gate.admit("bookings", EVENT)).verdict is Verdict.RUN
    with pytest.raises(StoreUnavailable, match="closed"):
        await gate.admit("bookings", {"id": "after"})


async def test_the_loop_goes_on_while_a_gate_waits_for_its_threads(ledger: Ledger) -> None:
    """A handler in a thread may wait for the loop: leaving the block must not block the loop."""
    loop, started, free = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    was_freed: list[bool] = []

    def wait(event: Any) -> None:
        loop.call_soon_threadsafe(started.set)
        was_freed.append(free.wait(5.0))

    async with Gate(ledger.url, clock=ledger.clock) as gate:
        gate.handler("bookings", key="{id}")(wait)
        admitting = asyncio.create_task(gate.admit("bookings", EVENT))
        await started.wait()
        loop.call_soon(free.set)
    await asyncio.gather(admitting, return_exceptions=True)
    assert was_freed == [True]


def test_the_store_down_means_no_effect(ledger: Ledger, style: Style) -> None:
    """I19: never fail open."""
    ledger.path.unlink()
    gate = ledger.gate()
    runs: list[Any] = []
    ledger.path.mkdir()
    style.register(gate, "bookings", runs.append)
    with pytest.raises(StoreUnavailable):
        style.admit(gate, "bookings", EVENT)
    assert not runs


def test_lanes_may_be_made_of_what_the_key_may(ledger: Ledger) -> None:
    """A field that is allowed for the key is allowed for the lane, which is the key where none is given."""
    gate = ledger.gate()
    options: dict[str, Any] = {"mode": "accept", "allow_transport": ("message_id",)}

    gate.handler("a", key="{message_id}", **options)(lambda event: None)
    gate.handler("b", key="{id}", lane="{message_id}", **options)(lambda event: None)
    with pytest.raises(ConfigError, match="transport"):
        gate.handler("c", key="{id}", mode="accept", lane="{message_id}")


@pytest.mark.parametrize("probe", ["find", lambda: 1, lambda key, more: 1])
def test_a_probe_that_could_not_be_called_after_a_crash_is_told_at_once(ledger: Ledger, probe: Any) -> None:
    """Nobody calls it before there is something to recover."""
    with pytest.raises(ConfigError, match="downstream 'terminal': probe"):
        ledger.gate().downstream("terminal", probe=probe)


@pytest.mark.parametrize("words", [(handle,), ("terminal", handle), (None, handle)])
def test_an_effect_without_its_downstream_is_told_in_words(
    ledger: Ledger, style: Style, words: tuple[Any, ...]
) -> None:
    gate = ledger.gate()

    def body(event, once):
        yield once.effect(*words, "x")

    style.register(gate, "bookings", body)
    with pytest.raises(
        UsageError, match=r"once.effect takes a downstream, as gate.downstream\(…\) gives it"
    ):
        style.admit(gate, "bookings", EVENT)
