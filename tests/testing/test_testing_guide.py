"""The examples of docs/testing.md run as they stand: the sound handler passes, the broken one is caught."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

GUIDE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.+?)```", GUIDE, re.DOTALL)
# Which step it crashes at may change with the gate; that it is one arrival and one crash may not.
AS_TOLD = re.compile(
    r"pay_card happened 2 times, not 1 \(seed \d+\), when\n"
    r"  - at [\d.]+ s the event arrives at worker \d, as it is\n"
    r"  - the worker crashes, the (first|second) time that .+ \([a-z]+\.[a-z]+\)\n"
    r"again: oncegate_chaos\(…, plans=0\)"
)


def run_examples(monkeypatch: pytest.MonkeyPatch, folder: Path, *, of: str) -> dict[str, Any]:
    """The examples of one file of the guide, in the order in which they stand."""
    monkeypatch.chdir(folder)
    variables: dict[str, Any] = {"__name__": of}
    name = ""
    for example in EXAMPLES:
        named = re.match(r"# (test_\w+)\.py\n", example)
        name = named[1] if named else name
        if name == of:
            exec(example, variables)  # the guide's own code, which this test is about
    return variables


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    variables = run_examples(monkeypatch, tmp_path, of="test_booking")
    yield variables
    variables["gate"].close()


def test_sound_handler_of_the_guide_passes(guide, oncegate_chaos):
    guide["test_one_slot_whatever_happens"](oncegate_chaos)


def test_broken_handler_of_the_guide_is_caught_as_it_says(guide, oncegate_chaos):
    with pytest.raises(AssertionError) as caught:
        guide["test_paid_once"](oncegate_chaos)

    shown = re.findall(r"```text\nAssertionError: (.+?)```", GUIDE, re.DOTALL)[0]
    for text in (str(caught.value), shown.strip()):
        assert AS_TOLD.fullmatch(text), text


def test_the_readmes_handler_runs_on_a_real_database(tmp_path, monkeypatch, oncegate_chaos):
    """It is the README's own, word by word."""
    variables = run_examples(monkeypatch, tmp_path, of="test_slots")
    with variables["gate"]:
        variables["test_one_slot_and_one_row"](partial(oncegate_chaos, plans=0))
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    (example,) = [one for one in EXAMPLES if "# test_slots.py" in one]
    start = example.index("@gate.handler")
    handler = example[start : example.index('return {"slot"', start)]
    assert handler in readme


def test_handlers_of_the_guide_with_a_transaction_of_their_own(tmp_path, monkeypatch, oncegate_chaos):
    """The sound one passes, the one that commits by itself is caught."""
    variables = run_examples(monkeypatch, tmp_path, of="test_orders")
    chaos = partial(oncegate_chaos, plans=0)
    with variables["gate"]:
        variables["test_paid_is_one_row"](chaos)
        with pytest.raises(AssertionError, match=r"finds \('A-1',\), \('A-1',\), not \('A-1',\)"):
            variables["test_refund_is_one_row"](chaos)


def test_every_example_of_the_guide_is_run():
    assert len(EXAMPLES) == 5
