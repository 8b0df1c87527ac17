"""One run's document as a page: tables between two marks of a Markdown file, pictures beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lab.bench.chart import curves_svg
from lab.bench.growth import FILL, ROOMY
from lab.bench.plot import Bar, as_svg
from lab.bench.sources import sources_part

BEGIN: Final = "<!-- written by make bench: begin -->"
END: Final = "<!-- written by make bench: end -->"
STREAM_WORDS: Final = {
    "fresh": "fresh",
    "replay": "replay",
    "mixed": "3 % repeats",
    "reread": "replay, from disk",
}
STORES: Final = {
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "valkey": "Valkey",
    "restate": "its own server",
}
SIGNS: Final = {
    "right": "right",
    "held": "held",
    "wrong": "**wrong**",
    "could not be run": "could not be run",
}
Document = dict[str, Any]


def write_page(document: Document, page: Path) -> list[Path]:
    """Puts tables into the page, and raw figures and pictures beside it; returns what was written."""
    pictures = pictures_of(document)
    beside = {page.with_name(f"{page.stem}-{name}.svg"): svg for name, svg in pictures.items()}
    beside[page.with_suffix(".json")] = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    text = (
        page.read_text("utf-8")
        if page.exists() and page.stat().st_size
        else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    )
    tables = as_markdown(document, [path.name for path in beside if path.suffix == ".svg"])
    page.parent.mkdir(parents=True, exist_ok=True)
    for path, content in {**beside, page: between_marks(text, tables)}.items():
        path.write_text(content, "utf-8")
    return [page, *beside]


def between_marks(text: str, tables: str) -> str:
    """The text with what stands between the marks replaced; marks are put at its end if it has none."""
    if BEGIN not in text or END not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables}\n{END}{rest.partition(END)[2]}"


def as_markdown(document: Document, pictures: list[str]) -> str:
    """Everything that was measured, as tables."""
    parts = [_machine(document), _targets(document)]
    if "cost" in document:
        parts.append(_cost(document))
    if "limits" in document:
        parts += [_limits(document), *_streams(document)]
    if "gate" in document:
        parts.append(_gate(document))
    if "modes" in document:
        parts.append(_modes(document))
    if "faults" in document:
        parts.append(_faults(document))
    if "growth" in document:
        parts += [_growth(document), _lanes(document)]
    for name, part in (("http", _http), ("sender", _sender), ("sources", sources_part)):
        if name in document:
            parts.append(part(document))
    parts += [f"![{name}]({name})" for name in pictures]
    return "\n\n".join(parts) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _machine(document: Document) -> str:
    machine, extent = document["machine"], document["extent"]
    named = [
        f"{name.replace('_', ' ')} {value}" for name, value in machine.items() if name != "load_before"
    ]
    load = f"load average {machine['load_before']} before and {document['load_after']} after"
    length = f"{extent['seconds']:g} s a run, {document['minutes']} minutes"
    taken = f"{extent['name']}: {extent['rounds']} rounds, {length}"
    failed = [f" **{name} could not be measured: {why}.**" for name, why in document["failed"].items()]
    return f"One run ({taken}). {', '.join(named)}; {load}.{''.join(failed)}"


def _targets(document: Document) -> str:
    rows = [[one["what"], _aim(one), _measured(one), _verdict(one)] for one in document["targets"]]
    return "### Aims\n\n" + _table(["what", "aim", "measured", ""], rows)


def _aim(one: Document) -> str:
    return f"{'at least' if one['at_least'] else 'at most'} {one['aim']:g} {one['unit']}"


def _measured(one: Document) -> str:
    return "not measured" if one["measured"] is None else f"{one['measured']:,.4g} {one['unit']}"


def _verdict(one: Document) -> str:
    if one["met"] is None:
        return "-"
    if one["met"]:
        return "met"
    share = one["measured"] / one["aim"] if one["aim"] else 0.0
    return f"**missed** ({share:.0%} of it)" if one["aim"] else "**missed**"


def _cost(document: Document) -> str:
    rows = [
        [row["name"], f"{row['us']:.1f}", f"{row['low']:.1f} - {row['high']:.1f}"]
        for row in document["cost"]
    ]
    head = ["processor time over a store that answers at once", "µs an event", "lowest - highest"]
    return f"### What the gate itself costs\n\n{_table(head, rows)}"


def _limits(document: Document) -> str:
    rows = [
        [row["name"], str(row["concurrency"]), f"{row['rate']:,.0f}", _spread(row), f"{row['p50_ms']:.2f}"]
        for row in document["limits"]
    ]
    head = ["limit", "at once", "a second", "lowest - highest", "p50 ms"]
    return "### Limits, between the subjects of the same rounds\n\n" + _table(head, rows)


def _spread(row: Document) -> str:
    return f"{row['rate_low']:,.0f} - {row['rate_high']:,.0f}"


def _streams(document: Document) -> Iterator[str]:
    for store in dict.fromkeys(one["store"] for one in document["subjects"]):
        subjects = [one for one in document["subjects"] if one["store"] == store]
        yield f"### Events a second: {STORES.get(store, store)}\n\n" + _table(*_stream_rows(subjects))


def _stream_rows(subjects: list[Document]) -> tuple[list[str], list[list[str]]]:
    tasks = sorted({c["concurrency"] for one in subjects for c in one["cells"] if c["stream"] == "fresh"})
    head = [
        "subject",
        *(f"fresh, {count}" for count in tasks),
        "replay",
        "3 % repeats",
        "p50 ms at 1",
        "remarks",
    ]
    return head, [_stream_row(one, tasks) for one in subjects]


def _stream_row(one: Document, tasks: list[int]) -> list[str]:
    name = f"{one['name']} {one['version']}".strip()
    if one["missing"]:
        return [name, *[""] * (len(tasks) + 3), one["missing"]]
    cells = {(cell["stream"], cell["concurrency"]): cell for cell in one["cells"]}
    fresh = [_rate(cells.get(("fresh", count))) for count in tasks]
    first = min(count for stream, count in cells if stream == "fresh")
    latency = f"{cells['fresh', first]['p50_ms']:.2f}"
    return [name, *fresh, _best(one, "replay"), _best(one, "mixed"), latency, _remarks(one)]


def _rate(cell: Document | None) -> str:
    return f"{cell['rate']:,} ({_spread(cell)})" if cell else "-"


def _best(one: Document, stream: str) -> str:
    cells = [cell for cell in one["cells"] if cell["stream"] == stream]
    return _rate(max(cells, key=lambda cell: cell["rate"], default=None))


def _remarks(one: Document) -> str:
    level = "" if one["durability"] == "ours" else "**less durable than the others**"
    again = max((cell["effects_again"] for cell in one["cells"]), default=0)
    ran = f"**repeats ran again: {again:,} effects too many**" if again > 0 else ""
    reread = [cell for cell in one["cells"] if cell["stream"] == "reread"]
    disk = f"replays read from disk {max(cell['rate'] for cell in reread):,}" if reread else ""
    return "; ".join(part for part in (one["note"], level, ran, disk) if part)


def _faults(document: Document) -> str:
    scenes = [*document["faults"][0]["cells"], *document["faults"][0]["shown"]]
    rows = [
        [f"{row['name']} {row['version']} on {STORES.get(row['store'], row['store'])}".replace("  ", " ")]
        + [_cell((row["cells"] | row["shown"])[scene]) for scene in scenes]
        for row in document["faults"]
    ]
    rows += [[name, *[""] * len(scenes[1:]), reason] for name, reason in document["faults_missing"].items()]
    head = [
        f"{scene} (not judged)" if scene in document["faults"][0]["shown"] else scene for scene in scenes
    ]
    return f"{_FAULT_WORDS}\n\n{_table(['subject', *head], rows)}"


_FAULT_WORDS: Final = """\
### What happens to one event

Real processes: `kill -9`, SIGSTOP past the lease of two seconds, redelivery until the event is settled or
20 s (8 s in a quick run) have gone. The downstream counts calls, refuses none, and can be asked what a key
owns. A cell gives the effects and business rows that one event had. *Right*: one effect, one row, settled
without a person; another payload is refused. *Held*: one effect at most, but unfinished although
the downstream could have been asked. *Wrong*: anything else. In the column that is not judged the request
is already on its way out when the worker falls asleep: no gate can call that back, only a downstream that
honours the key can refuse it."""


def _cell(cell: Document) -> str:
    if cell["judgement"] == "could not be run":
        return f"could not be run: {cell['said'][:80]}"
    counted = f"{_many(cell['effects'], 'effect')}, {_many(cell['rows'], 'row')}"
    return f"{SIGNS[cell['judgement']]}: {counted}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _growth_row(row: Document) -> list[str]:
    reserving = [f"{row['reserve_p50_ms']:.2f}", f"{row['reserve_p99_ms']:.2f}"]
    keeping = [f"{row['bytes_per_key']:,.0f}", f"{row['prune_us_per_key']:,.0f}", f"{row['open_ms']:.0f}"]
    return [STORES[row["store"]], f"{row['keys']:,}", *reserving, *keeping]


def _growth(document: Document) -> str:
    rows = [_growth_row(row) for row in document["growth"]["keys"]]
    head = [
        "store",
        "keys held",
        "reserve p50 ms",
        "p99 ms",
        "bytes a key",
        "pruning, µs a key",
        "opening, ms",
    ]
    words = (
        f"Filled through the store's own statements, {FILL} keys a transaction, payloads of two bytes."
        f" PostgreSQL has {ROOMY['shared_buffers']} of shared buffers here."
    )
    left_out = "".join(f" Left out: {reason}." for reason in document["growth"]["left_out"])
    return f"### Growth\n\n{words}{left_out}\n\n{_table(head, rows)}"


def _lanes(document: Document) -> str:
    rows = [
        [STORES[row["store"]], f"{row['lanes']:,}", f"{row['delivered_per_second']:,}"]
        for row in document["growth"]["lanes"]
    ]
    return _table(
        ["store", "lanes", "ordered deliveries a second, to a destination that does nothing"], rows
    )


def _gate(document: Document) -> str:
    words = (
        "The baseline is a hand-written program that makes the same two durable commits an event, one after"
        " the other, and keeps the same facts, with none of the promises. At one at a time baseline, task"
        " and thread take turns every few dozen events."
    )
    found = document["gate"]
    rows = [_measured_row(one["name"], one["concurrency"], one) for one in found["results"]]
    ratios = [
        [name, f"{value:.2f}", _lowest_highest(found, name)] for name, value in found["ratios"].items()
    ]
    head = ["ratio within a round", "median", "lowest - highest"]
    tables = f"{_table(_MEASURED, rows)}\n\n{_table(head, ratios)}"
    return f"### The gate on SQLite, beside a plain baseline\n\n{words}\n\n{tables}"


def _lowest_highest(found: Document, name: str) -> str:
    low, high = found["spread"][name]
    return f"{low:.2f} - {high:.2f}"


def _modes(document: Document) -> str:
    words = (
        "`data` hands the business write over, `block` is a commit block, `same database` one transaction"
        " for all of an event, `tx=` joins the user's own transaction. pgbench sends the same transactions."
    )
    found = document["modes"]
    rows = [
        [name, "", f"{one['rate']:,.0f}", _spread(one), f"{one['latency_ms']:.2f}", ""]
        for name, one in found["pgbench"].items()
    ]
    for who in ("asyncpg", "gate"):
        rows += [_measured_row(f"{who}, {one['name']}", one["concurrency"], one) for one in found[who]]
    rows += [
        [f"gate, {name}", "", f"{one['rate']:,.0f}", "", "", ""] for name, one in found["processes"].items()
    ]
    ratios = [[name, f"{value:.2f}"] for name, value in found["ratios"].items()]
    tables = f"{_table(_MEASURED, rows)}\n\n{_table(['ratio of medians', ''], ratios)}"
    return f"### Ways to commit on PostgreSQL, beside pgbench\n\n{words}\n\n{tables}"


_MEASURED: Final = ["what", "at once", "events a second", "lowest - highest", "p50 ms", "p99 ms"]


def _measured_row(name: str, at_once: int, one: Document) -> list[str]:
    times = [f"{one['p50_ms']:.2f}", f"{one['p99_ms']:.2f}"]
    return [name, str(at_once), f"{one['rate']:,.0f}", _spread(one), *times]


def _http(document: Document) -> str:
    rows = [
        [
            one["name"], one["keys"], f"{one['rate']:,}", _spread(one), f"{one['p50_ms']:.2f}",
            f"{one['p99_ms']:.2f}", f"{one['service_us']:.0f}" if "service_us" in one else "",
        ]
        for one in document["http"]["results"]
    ]  # fmt: skip
    head = [
        "server",
        "keys",
        "requests a second",
        "lowest - highest",
        "p50 ms",
        "p99 ms",
        "processor, µs a request",
    ]
    words = (
        "64 connections. `forward` brings every event to a handler over HTTP; the others have none to call."
        " `postgres x3` is three processes with 64 connections each on one PostgreSQL, `postgres 192` one"
        " with as many as they have together."
    )
    return f"### The service over HTTP, beside the bare server\n\n{words}\n\n{_table(head, rows)}"


def _sender(document: Document) -> str:
    rows = [[name, f"{value:.2f}"] for name, value in document["sender"]["ratios"].items()]
    turns = "; ".join(
        ", ".join(f"{name} {rate:,.0f}" for name, rate in turn.items())
        for turn in document["sender"]["turns"]
    )
    title = "### The sender over HTTP, beside the bare client"
    followed = _successors(document["sender"].get("successors", []))
    return f"{title}\n\n{_table(['ratio', ''], rows)}\n\nEvents a second, each turn: {turns}.{followed}"


def _successors(found: list[dict[str, Any]]) -> str:
    """How soon the next event of a key follows; a run from before that was measured has none."""
    rows = [
        [one["store"], f"{one['paced_ms']:.1f} ms at {one['paced_per_second']} events/s"]
        + [f"{of['successor_ms']:.1f} ms at {of['rate']:,} events/s" for of in one["backlogs"]]
        for one in found
    ]
    head = ["from an acknowledgement to the next event of its key", "evenly, in pairs"]
    head += [f"backlog, {of['in_flight']} in flight" for one in found[:1] for of in one["backlogs"]]
    text = "Medians, 1,000 keys. In a backlog it is the time that all requests in flight take in turn."
    return f"\n\n{_table(head, rows)}\n\n{text}" if rows else ""


def pictures_of(document: Document) -> dict[str, str]:
    """Bars for each store, and curves of growth."""
    found: dict[str, str] = {}
    for store in ("sqlite", "postgres"):
        bars = _bars(document, store)
        if bars:
            title = f"fresh events a second on {STORES[store]}, each at its best concurrency"
            found[f"peers-{store}"] = as_svg(title, bars)
    for name, (title, figure) in _CURVES.items():
        rows = document.get("growth", {}).get("keys", [])
        if len({row["keys"] for row in rows}) > 1:
            found[f"growth-{name}"] = curves_svg(title, "keys held", _series(rows, "keys", figure))
    lanes = document.get("growth", {}).get("lanes", [])
    if len({row["lanes"] for row in lanes}) > 1:
        series = _series(lanes, "lanes", "delivered_per_second")
        found["growth-lanes"] = curves_svg("ordered deliveries a second", "lanes", series)
    return found


_CURVES: Final = {
    "reserve": ("a reservation, median milliseconds", "reserve_p50_ms"),
    "bytes": ("bytes a key", "bytes_per_key"),
    "prune": ("pruning, microseconds a key", "prune_us_per_key"),
    "open": ("opening a ledger, milliseconds", "open_ms"),
}


def _series(rows: list[Document], size: str, figure: str) -> dict[str, list[tuple[float, float]]]:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        series.setdefault(STORES[row["store"]], []).append((row[size], row[figure]))
    return series


def _bars(document: Document, store: str) -> list[Bar]:
    bars: list[Bar] = []
    for one in document.get("subjects", []):
        cells = [cell for cell in one["cells"] if cell["stream"] == "fresh"]
        if one["store"] == store and cells:
            best = max(cells, key=lambda cell: cell["rate"])
            less = "" if one["durability"] == "ours" else " (less durable)"
            bars.append(
                (
                    f"{one['name']}{less}, {best['concurrency']} at once",
                    best["rate"],
                    one["name"] == "oncegate",
                )
            )
    return bars
