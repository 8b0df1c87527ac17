"""The examples of docs/testing.md run as they stand: the sound handler passes, the broken one is caught."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.+?)```", GUIDE, re.DOTALL)
# Which step it crashes at may change with the gate; that it is one arrival and one crash may not.
AS_TOLD = re.compile(
    r"pay_card happened 2 times, not 1 \(seed \d+\), when\n"
    r"  - at [\d.]+ s the event arrives at worker \d, as it is\n"
    r"  - the worker crashes, the (first|second) time that .+ \([a-z]+\.[a-z]+\)\n"
    r"again: oncegate_chaos\(…, plans=0\)"
)


@pytest.fixture
def guide(tmp_path, monkeypatch) -> Any:
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {"__name__": "test_booking"}
    for example in EXAMPLES:
        exec(example, variables)  # the guide's own code, which this test is about
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


def test_guide_has_two_examples():
    assert len(EXAMPLES) == 2
