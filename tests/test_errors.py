"""The error tree: the drawing in errors.py is the tree of classes, and every branch can be caught."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import oncegate
from oncegate import errors
from oncegate.errors import Busy, Failed, InputRefused, OncegateError
from oncegate.gate.flows.downstream_turns import StillUnderWay
from oncegate.gate.runtime.claim import Claim

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


class Declined(Failed):
    """A user's own, made of something else than its text."""

    def __init__(self, code: int) -> None:
        super().__init__(f"declined with {code}")
        self.code = code


def every_kind(root: type[OncegateError] = OncegateError) -> Iterator[type[OncegateError]]:
    """The whole tree, also of the rooms that have errors of their own."""
    yield root
    for kind in root.__subclasses__():
        yield from every_kind(kind)


def load_every_room() -> None:
    for room in pkgutil.walk_packages(oncegate.__path__, "oncegate."):
        if room.name != "oncegate.upkeep" and not room.name.endswith("__main__"):  # the first only raises
            importlib.import_module(room.name)


def made(kind: type[OncegateError]) -> OncegateError:
    """One of a kind, of whatever it wants to be made of."""
    wanted = [
        parameter
        for parameter in inspect.signature(kind.__init__).parameters.values()
        if parameter.name != "self"
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is parameter.empty
    ]
    given: list[Any] = [_value_of(str(parameter.annotation)) for parameter in wanted]
    return kind(*(given or ["in these words"]))


def _value_of(annotation: str) -> Any:
    samples = {"str": "text", "float": 1.5, "int": 4, "list[Mistake]": [], "Claim": _live_claim()}
    return samples.get(annotation)


def _live_claim() -> Claim:
    class Unsendable:
        def __reduce__(self) -> str:
            raise TypeError("a live handler goes nowhere")

    unsendable: Any = Unsendable()
    return Claim(unsendable, unsendable, unsendable, unsendable, b"", 1, 1)


@pytest.mark.slow
def test_every_error_survives_pickle_and_copy() -> None:
    """It may be raised in one process and caught in another, with its text and its values."""
    load_every_room()
    kinds = set(every_kind())
    assert {Busy, InputRefused, StillUnderWay, Declined} < kinds

    for kind in kinds:
        error = made(kind)
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(again) is kind
            assert (str(again), again.args) == (str(error), error.args), kind
            assert vars(again).keys() == vars(error).keys(), kind


def test_values_of_an_error_are_the_same_elsewhere() -> None:
    """What a caller reads of it, and what was noted on it."""
    busy = Busy("in flight", 1.5)
    busy.add_note("seen at noon")

    again = pickle.loads(pickle.dumps(busy))

    assert (again.retry_after_seconds, again.__notes__) == (1.5, ["seen at noon"])
    assert pickle.loads(pickle.dumps(Declined(4))).code == 4


def refuse() -> None:
    raise Busy("in flight", 1.5)


@pytest.mark.slow
def test_error_of_another_process_is_raised_here() -> None:
    """A pool that could not read it would break, or hang."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(Busy) as caught:
        pool.submit(refuse).result(60)

    assert caught.value.retry_after_seconds == 1.5
