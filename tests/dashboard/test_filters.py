from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.dashboard.filters import read_filter
from oncegate.model.states import State
from oncegate.store import EntryFilter

NOW = 1_800_000_000_000


def test_a_filter_says_what_it_means():
    asked = read_filter(
        'surface:portbase.cis state:unknown,held key:3F9a tenant:acme age>10m "two words"', NOW
    )

    assert asked.problem is None
    assert asked.wanted == EntryFilter(
        states=(State.UNKNOWN, State.HELD),
        surface="portbase.cis",
        tenant="acme",
        key_prefix="3f9a",
        label_contains="two words",
        received_before_ms=NOW - 600_000,
    )


def test_ages_and_waits_bound_both_ends():
    asked = read_filter("age<2h age>1m waits>4h reason:skew", NOW)
    assert asked.wanted == EntryFilter(
        reason_contains="skew",
        settled_before_ms=NOW - 4 * 3_600_000,
        received_before_ms=NOW - 60_000,
        received_after_ms=NOW - 7_200_000,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state:gone", "states are"),
        ("state:", "not a state"),
        ("key:xyz", "beginning of a key"),
        ("age>soon", "soon"),
        ("waits<1h", "waits takes >"),
        ('label:"open', "quotation mark"),
        ("one two", "given twice"),
        ("surface:", "after the colon"),
        ("id:7 state:held", "stands alone"),
        ("id:seven", "not an entry's id"),
        ("sate:held", "write state:… (or label:"),
        ("State:held", "write state:…"),
        ("state=held", "write state:…"),
        ("age:10m", "write age>…"),
        ("age>=10m", "=10m"),
        ("waits:4h", "write waits>…"),
    ],
)
def test_what_cannot_be_read_is_said_and_fits_nothing(text, said):
    asked = read_filter(text, NOW)
    assert asked.problem is not None
    assert said in asked.problem
    assert asked.wanted == EntryFilter()


@pytest.mark.parametrize("text", ["N-1:MSKU", "order:7", "label:state=held", "a>b", "2026-11-16:x"])
def test_what_is_only_like_a_label_is_searched_in_labels(text):
    asked = read_filter(text, NOW)
    assert (asked.problem, asked.wanted.label_contains) == (None, text.removeprefix("label:"))


@given(st.text(max_size=600))
def test_no_text_breaks_the_reader(text):
    read_filter(text, NOW)


@pytest.mark.parametrize(
    ("text", "is_narrow"),
    [
        ("state:held", True),
        ("state:held,committed", False),
        ("key:3f9a", True),
        ("key:3", False),
        ("x", False),
    ],
)
def test_only_filters_with_an_index_of_their_own_are_searched_without_a_bound(text, is_narrow):
    assert read_filter(text, NOW).is_narrow is is_narrow
