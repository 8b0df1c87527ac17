"""`oncegate deliver`: sends what was emitted, to every endpoint of a ledger, until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from typing import Any

from oncegate.cli.exitcodes import DONE
from oncegate.cli.output import print_json, tell
from oncegate.cli.parser import add_json, add_url
from oncegate.cli.sending import opened_sender
from oncegate.maintenance.background import Caretakers
from oncegate.maintenance.jobs import lane_duty
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.loops import run as run_in_loop
from oncegate.sender.sender import SenderOnCommits

_DESCRIPTION = """\
Deliver events to the endpoints of a ledger until SIGTERM or an interrupt: in order for each key, one at
a time, retried, and given up after an endpoint's last attempt. Any number of these may run on one
PostgreSQL ledger, beside programs that deliver for themselves. Endpoints that are added or changed
meanwhile are noticed within seconds. What was delivered is forgotten after seven days; dead letters
are not.

Stopping lets requests under way end; what does not end goes out again later with the same id."""

_EPILOG = """\
examples:
  oncegate deliver
  oncegate deliver --url postgresql://…/orders
  oncegate deliver --until-idle        # send what can be sent now, then end"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "deliver", help="send what was emitted, until stopped", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument(
        "--until-idle", action="store_true", help="end once nothing can be sent now; retries are left"
    )
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Delivers."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    with opened_sender(arguments.url) as sender:
        if arguments.until_idle:
            return run_in_loop(_deliver_once(sender, arguments))
        run_in_loop(_deliver(sender))
    tell("stopped")
    return DONE


async def _deliver_once(sender: SenderOnCommits, arguments: argparse.Namespace) -> int:
    async with DeliveryService(sender, runs=False) as service:
        done = await service.engine.run_once()
    if arguments.json:
        print_json({"delivered": done.delivered, "failed": done.failed, "next_due_ms": done.next_due_in_ms})
    else:
        print(f"{done.delivered} delivered, {done.failed} attempts failed")
    return DONE


async def _deliver(sender: SenderOnCommits) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    forgetting = Caretakers([lane_duty(sender.commits.store, sender.clock)], clock=sender.clock)
    async with forgetting, DeliveryService(sender):
        count = len(await sender.endpoints.list_all())
        tell(f"delivering to {count} endpoint{'' if count == 1 else 's'} of {sender.commits.store.address}")
        await stop.wait()
        tell("stopping")
