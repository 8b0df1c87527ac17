"""The conformance suite is many classes in one: a name that two of them have hides a test."""

from __future__ import annotations

from collections import defaultdict

from oncegate.testing.conformance import StoreConformance


def test_no_two_conformance_classes_define_a_test_of_the_same_name() -> None:
    """The second one would never run, on any store, and nobody would notice."""
    owners: dict[str, list[str]] = defaultdict(list)
    for part in StoreConformance.__mro__:
        for name in vars(part):
            if name.startswith("test_"):
                owners[name].append(part.__name__)

    assert len(owners) > 100
    assert {name: parts for name, parts in owners.items() if len(parts) > 1} == {}
