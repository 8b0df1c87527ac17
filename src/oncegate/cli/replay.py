"""`oncegate replay`: plays recorded arrivals to a handler or to a URL, and counts.

Must never play to the ledger of a running system: handlers get a ledger of their own, which is gone
afterwards unless another was named.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncegate.cli.app import load_gate
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.output import complain, print_json, tell
from oncegate.cli.parser import add_json, read_number, read_text
from oncegate.errors import ConfigError

if TYPE_CHECKING:
    from oncegate.recorder.planning import Planned
    from oncegate.recorder.recording import Recording
    from oncegate.recorder.replaying import ReplayReport

CONCURRENCY_MAX: Final = 256
SPEED_MAX: Final = 1_000_000.0
NUMBERS: Final = ("arrivals", "effects", "events", "keys")
VERDICTS: Final = ("run", "replay", "busy", "conflict", "quarantine", "hold", "accepted", "failed")

_DESCRIPTION = """\
Play recorded arrivals again: to the handlers of a module, or to a URL.
Handlers get an empty ledger of their own and a clock that follows the recording, but what they
call outside is called for real: name a module with fakes. Without a --speed no time passes
between arrivals. The exit code is 1 if an expectation was not met or a URL did not take an
arrival, 4 if the file is damaged or of another version."""

_EPILOG = """\
examples:
  oncegate replay monday.jsonl --app bookings_with_fakes:gate --expect effects=39
  oncegate replay monday.jsonl --app shop_with_fakes:gate --setup tables.sql --setup shop_with_fakes:use
  oncegate replay recordings/ --app bookings_with_fakes:gate --shuffle --seed 7
  oncegate replay monday.jsonl --to http://127.0.0.1:8700/in/{surface} --secret-env SECRET --speed 60
  oncegate replay monday.jsonl --dry-run"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "replay",
        help="play recorded arrivals to a handler or a URL",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    _add_target(parser)
    parser.add_argument("--speed", type=_speed, metavar="N", help="1 is as it was, 60 a minute a second")
    add_recording(parser)
    parser.set_defaults(run=run)


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Adds what every way of playing takes: recordings, their order, and what is expected of them."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="recordings, or folders of them, as one"
    )
    parser.add_argument(
        "--surface", type=read_text, action="append", default=[], help="only this one; may be repeated"
    )
    parser.add_argument("--shuffle", action="store_true", help="another order, which --seed decides")
    parser.add_argument("--seed", type=read_number, default=1, help="default: %(default)s")
    parser.add_argument(
        "--partial", action="store_true", help="take a file that was cut off as far as it goes"
    )
    parser.add_argument(
        "--expect", action="append", default=[], type=_expectation, metavar="NAME=N",
        help=f"one of {', '.join((*NUMBERS, *VERDICTS))}; may be repeated",
    )  # fmt: skip
    add_json(parser)


def _add_target(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--app", metavar="MODULE:GATE", help="the gate with its handlers, from this folder")
    target.add_argument("--to", metavar="URL", help="signed webhooks; {surface} stands for each one's name")
    target.add_argument("--dry-run", action="store_true", help="only tell what is in it")
    parser.add_argument(
        "--url", metavar="URL",
        help="with --app: a fresh ledger to use and keep (default: one that is gone afterwards;"
        " $ONCEGATE_URL is not used)",
    )  # fmt: skip
    parser.add_argument(
        "--setup", action="append", default=[], metavar="FILE|MODULE:FUNCTION",
        help="with --app: SQL that makes the tables handlers write to, or a function that is given the"
        " database; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--secret-env",
        metavar="NAME",
        help="with --to: the variable with the secret (whsec_…) to sign with",
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="with --to; may be repeated"
    )
    parser.add_argument(
        "--concurrency", type=_concurrency, default=1, metavar="N",
        help="with --to: requests under way at once (default: %(default)s, each after the one before)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-network", action="append", default=[], metavar="NET", help="a private network to call"
    )


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= SPEED_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a speed above 0 and up to {SPEED_MAX:,.0f}")
    return speed


def _concurrency(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= CONCURRENCY_MAX):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1 to {CONCURRENCY_MAX}")
    return int(text)


def _expectation(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not equals or name not in (*NUMBERS, *VERDICTS):
        known = ", ".join((*NUMBERS, *VERDICTS))
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not NAME=N with one of {known}")
    if not (number.isascii() and number.isdigit() and len(number) < 12):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} does not say how many")
    return name, int(number)


def run(arguments: argparse.Namespace) -> int:
    """Plays, tells what came of it, and compares it with what was expected."""
    _refuse_misplaced(arguments)
    recording = read_files(arguments)
    if arguments.dry_run:
        return _describe(recording, arguments)
    report, broken = _play(recording, arguments)
    return conclude(report, broken, arguments)


def read_files(arguments: argparse.Namespace) -> Recording:
    """Reads the recordings and tells what is missing in them."""
    from oncegate.recorder.reading import read_recordings

    recording = read_recordings(arguments.files, partial=arguments.partial)
    if not recording.is_whole:
        tell("a recording was cut off: what stands in it is played, and more may have arrived")
    if recording.left_out:
        tell(f"{recording.left_out} arrivals were left out of the recording for lack of room")
    return recording


def conclude(report: ReplayReport, broken: list[str], arguments: argparse.Namespace) -> int:
    """Shows what came of it, compares it with what was expected, and returns the exit code."""
    _show(report, arguments)
    broken += [line for one in arguments.expect for line in report.differences(dict([one]))]
    for line in broken:
        complain(line)
    return NOT_SO if broken else DONE


def _refuse_misplaced(arguments: argparse.Namespace) -> None:
    """Options that the target knows nothing of are mistakes, not to be passed over."""
    misplaced = {
        "--url belongs to --app": arguments.url is not None and arguments.app is None,
        "--setup belongs to --app": bool(arguments.setup) and arguments.app is None,
        "--secret-env belongs to --to": arguments.secret_env is not None and arguments.to is None,
        "--header belongs to --to": bool(arguments.header) and arguments.to is None,
        "--concurrency belongs to --to": arguments.concurrency != 1 and arguments.to is None,
        "--speed belongs to --app and --to": arguments.speed is not None and arguments.dry_run,
    }
    for told, is_so in misplaced.items():
        if is_so:
            raise ConfigError(told)


def _describe(recording: Recording, arguments: argparse.Namespace) -> int:
    from oncegate.recorder.summary import summarise

    found = summarise(recording)
    if arguments.json:
        print_json(found.document())
        return DONE
    print(f"{found.arrivals} arrivals of {found.events} events, {found.first_at} to {found.last_at}")
    for title, counts in (("repeats", found.repeats), ("answered", found.verdicts)):
        for name, count in counts.items():
            print(f"  {title}: {count} x {name}")
    if found.without_payload:
        print(f"  {found.without_payload} without a payload")
    return DONE


def _play(recording: Recording, arguments: argparse.Namespace) -> tuple[ReplayReport, list[str]]:
    """What came of it, and what is wrong with that whatever was expected."""
    if arguments.app is None:
        from oncegate.cli.replay_targets import replay_to_url

        return replay_to_url(recording, arguments)
    gate = load_gate(arguments.app)
    with tempfile.TemporaryDirectory(prefix="oncegate-replay-") as folder:
        from oncegate.cli.replay_targets import replay_to_gate

        url = arguments.url or f"sqlite:///{folder}/ledger.db"
        return replay_to_gate(recording, gate, url, arguments), []


def check_plan(recording: Recording, plan: list[Planned], arguments: argparse.Namespace) -> None:
    """Raises ConfigError where there is nothing to play, and tells of what cannot be."""
    wanted = [
        one for one in recording.arrivals if not arguments.surface or one.surface in arguments.surface
    ]
    without = [one for one in wanted if not one.has_payload]
    if not plan:
        why = f", since {without[0].why or 'the reason is unknown'}" if without else ""
        raise ConfigError(f"there is nothing to play: {len(wanted)} arrivals, none with a payload{why}")
    if without:
        tell(f"{len(without)} of {len(wanted)} arrivals have no payload and are not played")


def _show(report: ReplayReport, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(report.document())
        return
    effects = "not told" if report.effects is None else report.effects
    print(f"{'arrivals':<12}{report.arrivals:>8}")
    print(f"{'events':<12}{report.events:>8}")
    print(f"{'effects':<12}{effects:>8}")
    for name, count in sorted(report.verdicts.items()):
        print(f"  {name:<26}{count:>8}")
    for name, count in sorted(report.calls.items()):
        print(f"  called {name:<19}{count:>8}")
    if report.keys is not None and report.keys != report.events:
        tell(
            f"{report.events} events have {report.keys} keys here: is this the key they were recorded with?"
        )
