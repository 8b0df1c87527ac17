"""`oncegate record`: writes down the arrivals that a ledger still holds, with personal data taken out.

Must only read the ledger. Must never write a value for which no rule was given.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncegate.cli.app import add_app, load_gate
from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import print_json, tell, utc
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.errors import BadTimestamp, ConfigError

if TYPE_CHECKING:
    from oncegate.model.surface import SurfaceRule
    from oncegate.recorder.export import ExportedArrival
    from oncegate.recorder.writing import RecordingFile
    from oncegate.store import EntryFilter, Session

LIMIT_DEFAULT: Final = 100_000

_DESCRIPTION = """\
Write down what arrived, from a ledger that still has it, so that it can be played again with
`oncegate replay`. Every value is replaced by a keyed hash unless a rule says otherwise, and a
surface without rules is recorded without payloads. The ledger knows the first content of each
key, and of its repeats how many came and when the first and the last did; a `Recorder` in your
program, or `[record]` in the service's settings, writes down all of it as it comes."""

_EPILOG = """\
examples:
  oncegate record -o monday.jsonl --rules rules.toml --since 2026-03-02T00:00:00Z
  oncegate record -o cis.jsonl --rules rules.toml --app bookings:gate --surface portbase.cis
  oncegate record -o counts.jsonl          # no rules: who came when and how often, no payloads"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "record",
        help="write down arrivals without personal data, to be replayed",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="a new file; none is replaced"
    )
    parser.add_argument("--rules", type=Path, metavar="FILE", help="what is kept of payloads, in TOML")
    add_app(parser, required=False)
    parser.add_argument(
        "--surface", type=read_text, action="append", default=[], help="only this one; may be repeated"
    )
    parser.add_argument("--since", metavar="TIME", help="first arrivals from this time on, RFC 3339")
    parser.add_argument("--until", metavar="TIME", help="first arrivals before this time")
    parser.add_argument(
        "--key-env",
        metavar="NAME",
        help="the environment variable with the key for hashes, 16 bytes or more"
        " (default: a random one, which is forgotten)",
    )
    parser.add_argument(
        "--limit", type=read_number, default=LIMIT_DEFAULT, metavar="N",
        help="the newest so many entries (default: %(default)s)",
    )  # fmt: skip
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the recording and tells what is in it."""
    from oncegate.recorder.export import Exporter
    from oncegate.recorder.pseudonyms import Pseudonyms
    from oncegate.recorder.rules_file import read_rules

    rules = {} if arguments.rules is None else read_rules(arguments.rules)
    exporter = Exporter(rules, _surface_rules(arguments), Pseudonyms(read_key(arguments.key_env)))
    store = open_ledger(arguments.url)
    with reading(store, arguments.url) as session:
        moments = _moments(session, arguments)
        if not moments:
            raise ConfigError(f"{store.address} has no arrivals like that; nothing was written")
        file = _begun(arguments.output, moments[0].at_ms)
        exporter.write(session, moments, file)
        file.close()
    _tell(file, arguments)
    return DONE


def read_key(variable: str | None) -> bytes | None:
    """The key for hashes from the environment; None for a random one."""
    if variable is None:
        return None
    value = os.environ.get(variable)
    if not value:
        raise ConfigError(f"the environment has no {variable}")
    return value.encode()


def _surface_rules(arguments: argparse.Namespace) -> dict[str, SurfaceRule]:
    if arguments.app is None:
        return {}
    return {surface.name: surface.rule for surface in load_gate(arguments.app).engine.surfaces}


def _moments(session: Session, arguments: argparse.Namespace) -> list[ExportedArrival]:
    from oncegate.cli.entries import refuse_unknown_surface
    from oncegate.recorder.export import moments_of

    found: list[ExportedArrival] = []
    for surface in arguments.surface or [None]:
        if surface is not None:
            refuse_unknown_surface(session, surface)
        found += moments_of(session, _filter(surface, arguments), arguments.limit)
    return sorted(found)


def _filter(surface: str | None, arguments: argparse.Namespace) -> EntryFilter:
    from oncegate.store import EntryFilter

    return EntryFilter(
        surface=surface,
        received_after_ms=_time("--since", arguments.since),
        received_before_ms=_time("--until", arguments.until),
    )


def _time(option: str, text: str | None) -> int | None:
    from oncegate.model.timestamps import parse_timestamp

    if text is None:
        return None
    try:
        return int(parse_timestamp(text).timestamp() * 1000)
    except BadTimestamp as error:
        raise ConfigError(f"{option}: {error}") from None


def _begun(path: Path, began_ms: int) -> RecordingFile:
    from oncegate.recorder.writing import RecordingFile

    try:
        return RecordingFile.begun_at(path, began_ms)
    except FileExistsError:
        raise ConfigError(f"{path} exists already and is not replaced") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _tell(file: RecordingFile, arguments: argparse.Namespace) -> None:
    from oncegate.recorder.reading import read_recording
    from oncegate.recorder.summary import summarise

    found = summarise(read_recording(file.path))  # what can be read back is what was written
    if arguments.json:
        print_json({"file": str(file.path), "left_out": file.left_out, **found.document()})
    else:
        print(
            f"{found.arrivals} arrivals of {found.events} events from {utc(file.began_ms)} on: {file.path}"
        )
    if found.without_payload:
        tell(f"{found.without_payload} arrivals are without a payload and cannot be played to a handler")
    if file.left_out:
        tell(f"{file.left_out} arrivals were left out: the file is full; record shorter spans")
