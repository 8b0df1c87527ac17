"""How `oncegate bench sender` prints its figures."""

from __future__ import annotations

from typing import Any


def as_text(document: dict[str, Any]) -> str:
    """The document as tables."""
    lines = [f"{document['in_flight_max']} requests in flight at most, events of half a kilobyte", ""]
    lines += [*_bare(document["bare"]), ""]
    lines += [*_curve(document["curve"]), ""]
    for scene in document["failing"]:
        lines += _scene(scene)
    lines += ["", *_successors(document["successors"]), ""]
    lines += [f"in turns, 1,000 keys: {', '.join(_turn(one) for one in document['turns'])}"]
    lines += _rival(document["procrastinate"])
    return "\n".join(
        [*lines, "", *(f"  {value:>6.2f}x  {name}" for name, value in document["ratios"].items())]
    )


def _bare(rows: list[dict[str, Any]]) -> list[str]:
    return [f"bare client, receiver takes {row['delay_ms']} ms: {row['rate']:,} POSTs/s" for row in rows]


def _curve(rows: list[dict[str, Any]]) -> list[str]:
    head = (
        f"{'ledger':<9} {'keys':>6} {'takes ms':>8} {'events/s':>9} {'successor ms':>12}"
        f" {'at /s':>6} {'p50 ms':>8} {'p99 ms':>8} {'reordered':>9} {'repeated':>8}"
    )
    return [head] + [
        f"{row['store']:<9} {row['keys']:>6,} {row['delay_ms']:>8} {row['rate']:>9,}"
        f" {_number(row['successor_ms']):>12} {row['flow_per_second']:>6} {_number(row['p50_ms']):>8}"
        f" {_number(row['p99_ms']):>8} {row['reordered']:>9} {row['repeated']:>8}"
        for row in rows
    ]


def _scene(scene: dict[str, Any]) -> list[str]:
    return [
        (
            f"{scene['store']}, {scene['keys']:,} keys, 1 % of events fail once and one key always, at "
            f"{scene['flow_per_second']} events/s:"
        ),
        (
            f"  p50 {_number(scene['p50_ms'])} ms, healthy keys' p99 {_number(scene['healthy_p99_ms'])} ms;"
            f" {scene['failed']} failures, {scene['reordered']} reordered, {scene['repeated']} repeated"
        ),
    ]


def _successors(rows: list[dict[str, Any]]) -> list[str]:
    """What counts for the aim comes first; the rest shows what a backlog makes of it, and why."""
    lines = ["from an acknowledgement to the next event of its key, median (aim: 5 ms):"]
    for row in rows:
        lines.append(
            f"  {row['store']}, {row['keys']:,} keys, {row['paced_per_second']} events/s in pairs of a key:"
            f" {_number(row['paced_ms'])} ms (p99 {_number(row['paced_p99_ms'])})"
        )
        lines += [
            f"    in a backlog, {one['in_flight']} requests in flight: {_number(one['successor_ms'])} ms"
            f" at {one['rate']:,} events/s"
            for one in row["backlogs"]
        ]
    return [
        *lines,
        "  in a backlog every key that is begun goes on; between two of its requests is the time that all",
        "  requests in flight take in turn, which is their number divided by the rate",
    ]


def _turn(turn: dict[str, float]) -> str:
    return " / ".join(f"{name} {rate:,.0f}" for name, rate in turn.items())


def _rival(rival: dict[str, Any] | None) -> list[str]:
    if rival is None:
        return []
    if "missing" in rival:
        return [f"procrastinate {rival['missing']}"]
    return [f"procrastinate, 1,000 keys, receiver takes 0 ms: {rival['rate']:,} events/s"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
