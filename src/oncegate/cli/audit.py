"""`oncegate audit`: reads consumers and says where a repeat would do its work twice."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from oncegate.audit.baseline import compare, read_baseline, updated, write_baseline
from oncegate.audit.catalogue import RULES
from oncegate.audit.changed import changed_lines, only_changed
from oncegate.audit.configured import check_rules, read_settings
from oncegate.audit.output.documents import as_github, as_json, as_junit, as_markdown
from oncegate.audit.output.sarif import as_sarif
from oncegate.audit.output.text import as_text, explained, listed
from oncegate.audit.run import AuditSettings, audit
from oncegate.audit.values import AuditReport
from oncegate.cli.exitcodes import DONE, NOT_SO, UNKNOWN
from oncegate.cli.output import Colour, paint, tell
from oncegate.cli.parser import add_url
from oncegate.errors import ConfigError

_DESCRIPTION: Final = """\
Read Python code and find handlers that do their work twice when an event arrives twice: outside
calls without a reservation, keys made of transport parts, early acknowledgements, and so on. The
code is parsed, never imported or executed. What cannot be judged is counted as not judged."""
_EPILOG: Final = """\
exit codes:
  0  no new findings
  1  new findings
  2  a path, an option or a setting is wrong
  7  with --strict: no findings, but something was not judged or not read

examples:
  oncegate audit src/
  oncegate audit --explain OG001
  oncegate audit src/ --baseline audit.json --update-baseline
  oncegate audit --diff main --format github
  oncegate audit --format sarif --output audit.sarif"""
_FORMATS: Final = ("text", "json", "sarif", "junit", "github", "markdown")
_STYLES: Final = {"red": Colour.RED, "green": Colour.GREEN, "dim": Colour.DIM, "bold": Colour.BOLD}


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "audit",
        help="find handlers that do their work twice, by reading code",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files and folders (default: as configured, else this folder)",
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="text",
        help="how the report is written (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument(
        "--output", metavar="FILE", help="write the report to a file; the summary is still printed"
    )
    parser.add_argument("--explain", metavar="RULE", help="explain a rule and stop")
    parser.add_argument("--rules", action="store_true", help="list the rules and stop")
    _add_choice(parser)
    _add_known(parser)
    _add_actions(parser)
    parser.set_defaults(run=run)


def _add_actions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cards", action="store_true", help="add the four questions for each handler")
    parser.add_argument(
        "--not-judged", action="store_true", help="list what was not judged, with the reason"
    )
    parser.add_argument(
        "--strict", action="store_true", help="also fail (7) for what was not judged or not read"
    )
    parser.add_argument("--fix", action="store_true", help="apply the mechanical fixes to the files")
    parser.add_argument(
        "--patch", action="store_true", help="print what --fix would change, and change nothing"
    )
    parser.add_argument(
        "--keep", action="store_true",
        help="keep the report in the ledger, for the operations page; a ledger must exist",
    )  # fmt: skip
    parser.add_argument(
        "--report", metavar="FILE", help="with --keep: keep this report of --json instead of reading code"
    )
    parser.add_argument("--as", dest="actor", metavar="NAME", help="with --keep: who keeps it")
    add_url(parser)
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write .oncegate_cache")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: up to 2)")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    for name, text in (
        ("--select", "only this rule; may be given several times"),
        ("--ignore", "not this rule; may be given several times"),
    ):
        parser.add_argument(name, action="append", default=[], metavar="RULE", help=text)
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave files out; may be given several times",
    )
    parser.add_argument(
        "--handler", action="append", default=[], metavar="NAME",
        help="a function that is a handler, as module:function or a pattern; may be given several times",
    )  # fmt: skip


def _add_known(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline", metavar="FILE", help="findings in this file are known and do not count"
    )
    parser.add_argument(
        "--update-baseline", nargs="?", const="remove", choices=("remove", "all"),
        help="take what is gone out of the baseline; with 'all', or where there is no file yet,"
        " also add what is new",
    )  # fmt: skip
    parser.add_argument(
        "--diff", metavar="REVISION", help="only findings on lines that changed since this revision"
    )


def run(arguments: argparse.Namespace) -> int:
    """Audits and reports."""
    if arguments.explain:
        print(explained(RULES[check_rules([arguments.explain.upper()])[0]]))
        return DONE
    if arguments.rules:
        print(listed())
        return DONE
    if arguments.report:
        return _keep_file(arguments)
    base = Path.cwd()
    configured = read_settings(base)
    report = audit(_settings(arguments, configured))
    name = arguments.baseline or configured.get("baseline", "")
    report = _with_baseline(arguments, report, base / name if name else None)
    if arguments.diff:
        report = only_changed(report, changed_lines(arguments.diff, base))
    if arguments.patch or arguments.fix:
        return _fix(arguments, report, base)
    _write(arguments, report, bool(name))
    if arguments.keep:
        _keep(arguments, as_json(report).encode())
    if report.new:
        return NOT_SO
    return UNKNOWN if arguments.strict and (report.not_judged or report.skipped) else DONE


def _keep_file(arguments: argparse.Namespace) -> int:
    if not arguments.keep:
        raise ConfigError("--report goes with --keep")
    try:
        document = Path(arguments.report).read_bytes()
    except OSError as error:
        raise ConfigError(f"{arguments.report} cannot be read: {error.strerror}") from None
    _keep(arguments, document)
    return DONE


def _keep(arguments: argparse.Namespace, document: bytes) -> None:
    """Keeps a report in the ledger."""
    from oncegate.audit.kept import keep_report, read_report
    from oncegate.cli.ledger import open_ledger, reading
    from oncegate.cli.people import actor_of
    from oncegate.clock import SystemClock
    from oncegate.model.decisions import check_actor
    from oncegate.store import Facet

    report, actor = read_report(document), check_actor(actor_of(arguments))
    store = open_ledger(arguments.url, needs=Facet.STATS)
    with reading(store, arguments.url):
        pass  # a ledger that is missing or out of date is refused, not made
    session = store.connect()
    try:
        with session.unit():
            keep_report(session, report, at_ms=SystemClock().wall_ms(), actor=actor)
    finally:
        session.close()
    tell(f"the report is kept in {store.address}; the page shows it under Code audit")


def _settings(arguments: argparse.Namespace, configured: dict[str, Any]) -> AuditSettings:
    def both(given: list[str], name: str) -> tuple[str, ...]:
        return (*given, *configured.get(name, []))

    return AuditSettings(
        paths=tuple(arguments.paths or configured.get("paths", ["."])),
        exclude=both(arguments.exclude, "exclude"),
        handlers=both(arguments.handler, "handlers"),
        select=tuple(check_rules([one.upper() for one in arguments.select]))
        or tuple(configured.get("select", [])),
        ignore=both(check_rules([one.upper() for one in arguments.ignore]), "ignore"),
        jobs=max(0, min(arguments.jobs, os.cpu_count() or 1)),
        use_cache=not arguments.no_cache,
    )


def _with_baseline(arguments: argparse.Namespace, report: AuditReport, path: Path | None) -> AuditReport:
    from msgspec.structs import replace

    from oncegate.clock import SystemClock, from_wall_ms

    if path is None:
        if arguments.update_baseline:
            raise ConfigError(
                "--update-baseline needs --baseline FILE, or tool.oncegate.audit.baseline in pyproject.toml"
            )
        return report
    baseline = read_baseline(path)
    if arguments.update_baseline:
        today = from_wall_ms(SystemClock().wall_ms()).date().isoformat()
        adds = arguments.update_baseline == "all" or not path.exists()
        baseline = updated(report.findings, baseline, today, adds=adds)
        write_baseline(path, baseline)
        tell(f"{path.name}: {len(baseline.findings)} known findings")
    return replace(report, findings=tuple(compare(report.findings, baseline)))


def _fix(arguments: argparse.Namespace, report: AuditReport, base: Path) -> int:
    from oncegate.audit.fixing import apply_fixes, patch

    if arguments.patch:
        print(patch(base, report.findings), end="")
        return DONE
    done = apply_fixes(base, report.findings)
    for path, count in done.items():
        tell(f"{path}: {count} fixed")
    left = sum(not finding.edits for finding in report.findings)
    tell(f"{sum(done.values())} fixed, {left} findings need a person: oncegate audit")
    return NOT_SO if left else DONE


def _write(arguments: argparse.Namespace, report: AuditReport, has_baseline: bool) -> None:
    text = _formatted(arguments, report, has_baseline)
    if not arguments.output:
        print(text)
        return
    Path(arguments.output).write_text(f"{text}\n", "utf-8", errors="backslashreplace")
    from oncegate.audit.output.text import summary

    tell(summary(report))


def _formatted(arguments: argparse.Namespace, report: AuditReport, has_baseline: bool) -> str:
    chosen = "json" if arguments.json else arguments.format
    if chosen == "sarif":
        from oncegate import __version__

        return as_sarif(report, __version__, has_baseline=has_baseline)
    others = {"json": as_json, "junit": as_junit, "github": as_github, "markdown": as_markdown}
    if chosen in others:
        return others[chosen](report)

    def coloured(words: str, style: str) -> str:
        return words if arguments.output else paint(words, _STYLES[style])

    return as_text(report, coloured, details=arguments.not_judged, cards=arguments.cards)
