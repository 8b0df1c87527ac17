"""The error tree: the drawing in errors.py is the tree of classes, and every branch can be caught."""

from __future__ import annotations

import inspect
import re

import pytest

from oncegate import errors
from oncegate.errors import Busy, InputRefused, OncegateError

LINE = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:\s{2,}(?P<meaning>\S.*))?$")


def drawn() -> dict[str, str | None]:
    """Reads the drawing: each class and the one it hangs from."""
    parents: dict[str, str | None] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        depth = len(match["indent"]) // 4
        above = [*above[:depth], match["name"]]
        parents[match["name"]] = above[depth - 1] if depth else None
    return parents


def classes() -> dict[str, str | None]:
    """Reads the classes: each and its first base, None for the root."""
    found = {
        name: thing
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and thing.__module__ == errors.__name__
    }
    return {
        name: thing.__bases__[0].__name__ if thing is not OncegateError else None
        for name, thing in found.items()
    }


def test_the_drawing_is_the_tree() -> None:
    """A class that is not drawn, or drawn elsewhere, is found here."""
    assert drawn() == classes()
    assert len(drawn()) > 20


def test_every_error_has_a_sentence() -> None:
    """Its docstring is its meaning, for whoever catches it."""
    for name in classes():
        text = inspect.getdoc(getattr(errors, name)) or ""
        assert text.endswith("."), name
        assert len(text) > 20, name


@pytest.mark.parametrize("name", sorted(classes()))
def test_every_error_is_caught_by_the_root(name: str) -> None:
    """`except OncegateError` catches everything that oncegate raises on purpose."""
    assert issubclass(getattr(errors, name), OncegateError)


def test_exit_codes_tell_the_branches_apart() -> None:
    """The command line returns them; scripts depend on the numbers."""
    codes = {name: getattr(errors, name).exit_code for name in classes()}
    assert codes["OncegateError"] == codes["NotRun"] == codes["ClaimLost"] == 1
    assert codes["ConfigError"] == codes["BadUrl"] == codes["UsageError"] == 2
    assert codes["StoreError"] == codes["StoreUnavailable"] == codes["StoreFull"] == 3
    assert (codes["StoreCorrupt"], codes["SchemaMismatch"], codes["DurabilityRefused"]) == (4, 5, 6)
    assert all(code > 0 for code in codes.values())


def test_errors_carry_what_a_caller_needs() -> None:
    """A time to come back, a field and a reason: as values, not as text to be parsed."""
    assert Busy("in flight", 1.5).retry_after_seconds == 1.5
    refused = InputRefused("missing", "order.id", "the event has no such field")
    assert (refused.reason, refused.path) == ("missing", "order.id")
    assert str(refused) == "order.id: the event has no such field"
