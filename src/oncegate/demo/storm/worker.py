"""One worker of the storm, as a process of its own.

    python -m oncegate.demo.storm.worker --terminal URL [--ungated FILE] [--later-seconds N]

Who calls it: `workers.Crew`. Deliveries come in on stdin and answers go out on stdout, one JSON line each.
Without --ungated it books behind the gate, on the ledger that ONCEGATE_URL names: an address may hold a
password, which has no place in a process list. Must never outlive its parent: it ends when stdin closes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from oncegate.config import store_url
from oncegate.demo.storm.handlers import BookingSystem, GatedSystem, UngatedSystem
from oncegate.demo.storm.later import LaterClock
from oncegate.demo.storm.story import StormFault
from oncegate.demo.terminal_client import TerminalClient


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m oncegate.demo.storm.worker")
    parser.add_argument("--terminal", required=True, help="address of the terminal")
    parser.add_argument("--ungated", type=Path, help="file of bookings, to work without the gate")
    parser.add_argument("--later-seconds", type=int, default=0, help="how far the clock is ahead")
    return parser.parse_args(arguments)


def _open_system(options: argparse.Namespace) -> BookingSystem:
    client = TerminalClient(options.terminal)
    if options.ungated is not None:
        return UngatedSystem(options.ungated, client)
    clock = LaterClock(timedelta(seconds=options.later_seconds))
    return GatedSystem(store_url(), client, clock)


def _work_off(system: BookingSystem, order: dict[str, Any]) -> dict[str, Any]:
    fault = None if order["fault"] is None else StormFault(order["fault"])
    try:
        return {"done": system.take(order["event"], fault)}
    except Exception as error:  # noqa: BLE001  whatever it is, the message is not acknowledged
        return {"done": None, "error": f"{type(error).__name__}: {error}"[:300]}


def main(arguments: list[str] | None = None) -> int:
    """Work deliveries off until stdin closes."""
    with contextlib.closing(_open_system(_parse(arguments))) as system:
        for line in sys.stdin:
            answer = json.dumps(_work_off(system, json.loads(line)))
            # Unbuffered, and nobody to tell if the parent is gone: then stdin has ended too.
            with contextlib.suppress(BrokenPipeError):
                os.write(sys.stdout.fileno(), answer.encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
