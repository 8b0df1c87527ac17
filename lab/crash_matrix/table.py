"""The table of the crash matrix for docs/proof.md, from the record of a run; and its place on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lab import ROOT
from lab.crash_matrix.cells import Cell, Ledger, Manner, Phase, Times, all_cells
from oncegate.crashpoints import ALL_CRASH_POINTS

PAGE = ROOT / "docs" / "proof.md"
RECORD = ROOT / "lab" / "crash_matrix" / "crash-matrix.json"
BEGIN, END = "<!-- crash matrix: begin -->", "<!-- crash matrix: end -->"

Record = dict[str, dict[str, Any]]  # by a cell's text


def page_with(page: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(marks[0])
    _, mark, after = rest.partition(marks[1])
    assert mark, f"{PAGE.name} has no place for the table"
    return f"{before}{marks[0]}\n{table}{marks[1]}{after}"


def rendered(record: Record) -> str:
    """Both tables and what they add up to."""
    cells = list(all_cells())
    played = [cell for cell in cells if not cell.why_impossible]
    strikes = sum(record[str(cell)]["strikes"] for cell in played)
    tries = sum(record[str(cell)]["tries"] for cell in played)
    head = (
        f"{len(cells)} cells: {len(played)} were played, with {tries:,} trials and {strikes:,} strikes, "
        f"and kept every promise; {len(cells) - len(played)} cannot exist.\n"
    )
    return "\n".join([head, *(_table(ledger, record) for ledger in Ledger), _notes()])


def _table(ledger: Ledger, record: Record) -> str:
    columns = [(manner, phase) for manner in Manner for phase in Phase]
    titles = [f"{manner.value}, {phase.value}" for manner, phase in columns]
    rows = [_row([ledger.value, *titles]), _row(["---"] * (len(columns) + 1))]
    for point in ALL_CRASH_POINTS:
        shown = [_shown(point, ledger, manner, phase, record) for manner, phase in columns]
        rows.append(_row([f"`{point}`", *shown]))
    return "\n".join(rows) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(point: str, ledger: Ledger, manner: Manner, phase: Phase, record: Record) -> str:
    pair = [Cell(point, ledger, manner, times, phase) for times in Times]
    if pair[0].why_impossible:
        return "none ¹"
    found = [record[str(cell)] for cell in pair]
    marks = "".join(mark for mark, applies in _MARKS if any(applies(cell) for cell in found))
    return " + ".join(str(cell["strikes"]) for cell in found) + (f" {marks}" if marks else "")


_MARKS: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
    ("ᵖ", lambda found: "for a person" in found["ends"]),
    ("ᵐ", lambda found: "ran again" in found["ends"]),
    ("ʷ", lambda found: any(told.startswith("meanwhile") for told in found["told"])),
)


def _notes() -> str:
    notes = (
        "`6 + 18`: six workers were struck once each, and eighteen where they were struck repeatedly",
        "ᵖ an unrepeatable step was interrupted after its recorded start: its event waits for a person",
        "ᵖ at `restore.*`: the ledger lost the record of an event whose downstream cannot be asked",
        "ᵐ who remembered a lost event died, or stood still, before it was written down: it ran again",
        "ʷ the stalled worker held a lock of the database: others were refused until it went on",
        "¹ only a recovery comes here",
    )
    return "\n".join([*(f"- {note}" for note in notes), ""])
