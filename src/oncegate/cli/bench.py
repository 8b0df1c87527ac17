"""`oncegate bench`: measures the gate beside a plain baseline on this machine's own disk."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

QUICK_SCALE = 0.2
QUICK_SIZE_KEYS = 20_000


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "bench",
        help="measure the gate beside a plain baseline",
        description="Measures the gate beside a plain baseline that does the same two durable commits an "
        "event by hand. Subjects take turns; medians are printed with the lowest and highest.",
    )
    add_gate(parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT"))


def add_gate(subjects: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers `bench gate`, here and in the lab."""
    gate = subjects.add_parser("gate", help="reserve, effect, commit, answer on the embedded ledger")
    gate.add_argument("--url", help="measure on the disk of this sqlite:/// address (default: temporary)")
    gate.add_argument(
        "--concurrency",
        default="1,32,256",
        type=_concurrencies,
        help="comma-separated numbers of tasks at once (default: 1,32,256)",
    )
    gate.add_argument("--rounds", default=5, type=positive, help="how often to repeat (default: 5)")
    gate.add_argument("--quick", action="store_true", help="fewer events, for a first impression")
    gate.add_argument("--json", action="store_true", help="print one JSON document")
    gate.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    from oncegate.bench.gate import GateBench

    document = GateBench(
        url=arguments.url,
        concurrencies=arguments.concurrency,
        rounds=arguments.rounds,
        size_keys=QUICK_SIZE_KEYS if arguments.quick else 100_000,
        scale=QUICK_SCALE if arguments.quick else 1.0,
        talk=lambda line: print(line, file=sys.stderr),
    ).run()
    print(json.dumps(document, indent=2) if arguments.json else _as_text(document))
    return 0


def _as_text(document: dict[str, Any]) -> str:
    lines = [
        ", ".join(f"{name} {value}" for name, value in document["machine"].items()),
        "",
        f"{'what':<20} {'at once':>7} {'events/s':>10} {'low - high':>17} {'p50 ms':>8} {'p99 ms':>8}",
    ]
    for item in document["results"]:
        spread = f"{item['rate_low']:,.0f} - {item['rate_high']:,.0f}"
        lines.append(
            f"{item['name']:<20} {item['concurrency']:>7} {item['rate']:>10,.0f} {spread:>17} "
            f"{item['p50_ms']:>8.2f} {item['p99_ms']:>8.2f}"
        )
    lines += ["", "ratios, the median of the rounds (lowest - highest)"]
    for name, value in document["ratios"].items():
        low, high = document["spread"][name]
        lines.append(f"  {value:>7.2f}x {f'({low:.2f} - {high:.2f})':>17}  {name}")
    if document["size"]:
        size = document["size"]
        lines += ["", f"{size['bytes_per_key']} bytes on disk per settled key over {size['keys']:,} keys,"]
        lines += [f"{size['bytes_per_key_with_payload_and_outcome']} with payload, outcome and booking"]
    return "\n".join([*lines, "", _watching_as_text(document["watching"])])


def _watching_as_text(found: dict[str, Any]) -> str:
    is_clear = found["overhead_low"] > 0 or found["overhead_high"] < 0
    return (
        f"signals and the worker: {found['overhead']:+.1%} processor time"
        f" (median of {found['pairs']} pairs; with 95 % certainty between {found['overhead_low']:+.1%}"
        f" and {found['overhead_high']:+.1%}):"
        f" {found['with_us']} µs an event with them, {found['without_us']} µs without"
        f"{'' if is_clear else '; too few pairs, or too noisy a machine, to tell it from nothing'}"
    )


def _concurrencies(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(positive(part) for part in text.split(",")))


def positive(text: str) -> int:
    """Reads a number of rounds, tasks or processes."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= 10_000):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1 to 10000")
    return int(text)
