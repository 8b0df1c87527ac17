"""`oncegate journal seal, head, heads, verify, prove, consistency, keygen, auditor`: what can be proved."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.journal.keys import PrivateKey, write_private
from oncegate.journal.notes import Checkpoint
from oncegate.journal.proofs import prove_consistency, prove_entry, sealed_state
from oncegate.journal.publishing import read_note
from oncegate.journal.tiles import HEAD, read_state
from oncegate.journal.trust import KEY_VARIABLE, published_heads, trusted_keys, verify_briefly
from oncegate.journal.verifying import Verification, VerifyReport
from oncegate.store import Session
from oncegate.wiring.journal import is_sealing, sealer


def add_proofs(commands: Any) -> None:
    """Adds the commands for sealing and proving."""
    _add(commands, "seal", run_seal, "seal the log once, whatever the interval",
         "Seal committed log records into the signed journal, and publish its head. The worker does it by"
         f" itself where {KEY_VARIABLE} names a key.").add_argument(
        "--once", action="store_true", help="as always; for scripts that say so")  # fmt: skip
    _add(commands, "head", run_head, "print the newest signed head",
         "Print the newest signed head. Keep it outside: it proves"
         " what came before it.")  # fmt: skip
    _add(commands, "heads", run_heads, "list every signed head", "List every signed head: size and time.")
    verify = _add(
        commands, "verify", run_verify, "check the whole journal against the ledger",
        "Check every sealed record, event and outcome against the tree, and the tree against its signed"
        " heads. Ends with 1 where something does not fit.",
    )  # fmt: skip
    verify.add_argument("--head", type=Path, action="append", default=[], metavar="FILE",
                        help="a head that was kept outside; the journal must begin with it")  # fmt: skip
    verify.add_argument("--trust", metavar="KEY", help="a verifier key, or a file of them")
    verify.add_argument("--records-only", action="store_true", help="leave events and outcomes out")
    prove = _add(commands, "prove", run_prove, "print proofs for the records of an entry",
                 "Print a proof for each sealed record of an entry, for the auditor.")  # fmt: skip
    prove.add_argument("entry", type=read_number, metavar="ENTRY", help="the number of the entry")
    prove.add_argument("--out", type=Path, metavar="FILE", help="write to a file")
    prove.add_argument(
        "--content", action="store_true", help="with its event and outcome, to be checked too"
    )
    both = _add(commands, "consistency", run_consistency, "prove that one head is the beginning of another",
                "Print a proof that the smaller head is the beginning of the larger one.")  # fmt: skip
    both.add_argument("old", type=read_number, metavar="A", help="the size of the smaller head")
    both.add_argument("new", type=read_number, metavar="B", help="the size of the larger head")
    _add_without_ledger(commands)


def _add_without_ledger(commands: Any) -> None:
    keygen: argparse.ArgumentParser = commands.add_parser(
        "keygen", help="make a signing key",
        description="Make a signing key in a new file for its owner only; print its verifier key.",
    )  # fmt: skip
    keygen.add_argument("file", type=Path, metavar="FILE", help="a file that does not exist yet")
    keygen.add_argument("--name", type=read_text, metavar="NAME",
                        help="its name, such as shop.example/orders; a new key keeps it")  # fmt: skip
    keygen.set_defaults(run=run_keygen)
    auditor: argparse.ArgumentParser = commands.add_parser(
        "auditor", help="print the program that checks proofs",
        description="Print a program of under 200 lines that checks proofs with Python alone.",
    )  # fmt: skip
    auditor.set_defaults(run=run_auditor)


def _add(commands: Any, name: str, run: Any, summary: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=text)
    add_url(made)
    add_json(made)
    made.set_defaults(run=run)
    return made


def run_keygen(arguments: argparse.Namespace) -> int:
    """Makes a key."""
    import secrets

    key = PrivateKey.generate(arguments.name or f"oncegate-{secrets.token_hex(4)}")
    write_private(arguments.file, key)
    print(key.verifier.text)
    tell(f"written; sign with it: export {KEY_VARIABLE}=file:{arguments.file.resolve()}")
    tell("give the line above to those who verify")
    return DONE


def run_auditor(arguments: argparse.Namespace) -> int:
    """Prints the auditor's program."""
    print((files("oncegate.journal") / "auditor.py").read_text("utf-8"), end="")
    return DONE


def run_seal(arguments: argparse.Namespace) -> int:
    """Seals what is there."""
    store = open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass
    with closing(store):
        report = sealer(store, SystemClock()).run_once(at_once=True)
    if arguments.json:
        print_json({"sealed": report.sealed, "size": report.size, "problem": report.problem})
    elif report.problem is None:
        tell(f"sealed {report.sealed} records; the journal has {report.size}")
    return DONE if report.problem is None and report.is_complete else NOT_SO


def run_head(arguments: argparse.Namespace) -> int:
    """Prints the newest head."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        state = sealed_state(session)
    if arguments.json:
        print_json({"size": state.size, "at": utc(state.at_ms), "head": state.head})
    else:
        print(state.head, end="")
    return DONE


def run_heads(arguments: argparse.Namespace) -> int:
    """Lists every head."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        sealed_state(session)
        found = [
            (Checkpoint.parse(one.body.decode()), one.changed_at_ms) for one in session.documents(HEAD)
        ]
    if arguments.json:
        for head, at_ms in found:
            print_json({"size": head.size, "at": utc(at_ms), "root": head.root.hex()})
    else:
        rows = [
            [Cell.of(str(head.size)), Cell.of(utc(at_ms)[:19]), Cell.of(head.root.hex()[:16])]
            for head, at_ms in found
        ]
        print_table(("RECORDS", "SIGNED AT (UTC)", "ROOT"), rows)
    return DONE


def run_verify(arguments: argparse.Namespace) -> int:
    """Checks the journal."""
    heads = [(str(path), _given(path)) for path in arguments.head] + published_heads()
    trusted = trusted_keys(arguments.trust)
    with reading(open_ledger(arguments.url), arguments.url) as session:
        report = Verification(
            session, trusted=trusted, heads=heads, with_bodies=not arguments.records_only
        ).run()
    if arguments.json:
        print_json({**_facts(report), "is_trusted": bool(trusted), "heads_outside": len(heads)})
    else:
        _tell(report, is_trusted=bool(trusted), heads_outside=len(heads))
    return DONE if report.is_intact and report.size else NOT_SO


def examine_journal(session: Session) -> tuple[bool, str, str]:
    """What `oncegate doctor` says of the journal: is it good, what was checked, what next."""
    state, _ = read_state(session)
    if state is None:
        return True, "not sealed: changes of the log would not show (docs/journal.md)", ""
    report = verify_briefly(session, with_bodies=False)
    if report is None:
        return True, f"{state.size} sealed records, not checked here", "run: oncegate journal verify"
    if not report.is_intact:
        return False, report.findings[0].what, "run: oncegate journal verify"
    return True, f"{report.size} sealed records checked, {report.unsealed} not sealed yet", ""


def _given(path: Path) -> str:
    try:
        return read_note(path)
    except OSError as error:
        raise ConfigError(f"cannot read the head {path}: {error.strerror}") from None


def _facts(report: VerifyReport) -> dict[str, Any]:
    return {
        "is_intact": report.is_intact and bool(report.size),
        "records": report.size,
        "heads": report.heads,
        "contents": report.bodies,
        "unsealed": report.unsealed,
        "findings": [{"what": one.what, "first": one.first, "last": one.last, "entry": one.entry}
                     for one in report.findings],
        "more": report.more,
    }  # fmt: skip


def _tell(report: VerifyReport, *, is_trusted: bool, heads_outside: int) -> None:
    for one in report.findings:
        place = f"record {one.first}" if one.first == one.last else f"records {one.first} to {one.last}"
        print(f"{place}: {one.what}")
    if report.more:
        print(f"and {report.more} more")
    if not report.size:
        again = "oncegate journal seal --once" if is_sealing() else "oncegate journal keygen journal.key"
        tell(f"nothing is sealed yet, so nothing can be verified; next: {again}")
        return
    word = "intact" if report.is_intact else "NOT intact"
    print(f"{word}: {report.size} records, {report.heads} signed heads, {report.bodies} contents")
    tell(f"{report.unsealed} records wait to be sealed")
    if not is_trusted:
        tell("the keys are the ledger's own word: give --trust KEY to know who signed")
    if not heads_outside:
        tell("no head from outside was compared: give --head FILE to know that the ledger did not go back")


def run_prove(arguments: argparse.Namespace) -> int:
    """Prints proofs."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        proofs = prove_entry(session, arguments.entry, with_content=arguments.content)
    text = json.dumps(proofs, ensure_ascii=False) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.write_text(text, "utf-8")
        tell(f"{len(proofs)} proofs in {arguments.out}; check: oncegate journal auditor > verify.py")
    return DONE


def run_consistency(arguments: argparse.Namespace) -> int:
    """Prints a proof of consistency."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        print(json.dumps(prove_consistency(session, arguments.old, arguments.new), ensure_ascii=False))
    return DONE
