"""Sources that disagree on time: aligned by id, with the offset of their clocks."""

from __future__ import annotations

import pytest

from oncegate.errors import ConfigError
from oncegate.journal.timelines import SourceLog, compare, read_source


def test_the_offset_of_a_clock_is_found_and_taken_out() -> None:
    ours = SourceLog("ours", {f"e{n}": 1_000_000 + n * 1000 for n in range(20)})
    late = {name: at + 90_000 + (n % 3) for n, (name, at) in enumerate(ours.times.items()) if name != "e7"}
    provider = SourceLog("provider", late | {"e9": late["e9"] + 60_000, "x": 1_005_000 + 90_000})
    found = compare([ours, provider])
    assert (found.offsets[1].offset_ms, found.offsets[1].shared) == (90_001, 19)
    remarks = {row.id: row.remark for row in found.rows if row.remark}
    assert remarks == {
        "e7": "not in provider",
        "x": "not in ours",
        "e9": remarks["e9"],
    }
    assert "apart after correction" in remarks["e9"]
    order = [row.id for row in found.rows]
    assert order.index("e5") < order.index("e6")


def test_a_providers_log_is_read_as_csv_and_as_json_lines() -> None:
    csv = "event_id,sent_at\ne1,2026-11-18T06:43:00Z\ne1,2026-11-18T06:44:00Z\ne2,1763448180\n"
    lines = '{"id": "e1", "at": 1763448180000}\n\n{"id": 7, "at": "2026-11-18T07:43:00+01:00"}\n'
    first, second = read_source("csv", csv), read_source("json", lines)
    assert (first.repeats, set(first.times)) == (1, {"e1", "e2"})
    assert first.times["e2"] == 1_763_448_180_000 == second.times["e1"]
    assert second.times["7"] == first.times["e1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no row"),
        ("id,at\n", "no row"),
        ("name,at\nx,1\n", "its fields are name, at"),
        ("id,at\nx,yesterday\n", "is no time"),
        ('{"id": 1', "not JSON"),
        ("id,at\nx,2026-11-18T06:43:00\n", "is no time"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_source("provider", text)


def test_one_source_is_nothing_to_compare() -> None:
    with pytest.raises(ConfigError, match="two or three"):
        compare([SourceLog("ours", {"a": 1})])
