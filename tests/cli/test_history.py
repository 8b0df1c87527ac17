"""Commands of snapshots and roll-back: what a person reads who makes mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncegate.cli.main import main
from oncegate.journal.keys import PrivateKey
from tests.support.care import Care

pytestmark = pytest.mark.slow


@pytest.fixture
def care(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Care:
    """A ledger with a snapshot, two copies and a plan; closed, as commands find it."""
    monkeypatch.chdir(tmp_path)
    made = Care("sqlite:///care.db", tmp_path)
    made.fill(2)
    made.take()
    made.fill(2, "x")
    made.take()
    made.plan()
    made.close()
    (tmp_path / "keys.txt").write_text(PrivateKey("care", b"k" * 32).verifier.text)
    (tmp_path / "wrong.txt").write_text(PrivateKey("care", b"o" * 32).verifier.text)
    return made


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_auditor_needs_storage_and_keys_only(care: Care, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the program or the ledger; a wrong key and a missing one are one line each."""
    where = ("--in", care.vault)
    code, out, _ = told(capsys, "snapshots", "verify", *where, "--keys", "keys.txt", "--json")
    assert (code, json.loads(out)["snapshots"]) == (0, 2)
    code, out, _ = told(capsys, "snapshots", "list", *where, "--keys", "keys.txt")
    assert (code, out.count("\n")) == (0, 3)
    code, out, err = told(capsys, "snapshots", "diff", "1", "latest", *where, "--keys", "keys.txt")
    assert (code, out.count("added routes x")) == (1, 2)
    assert "routes: 2 added" in err
    code, _, err = told(capsys, "snapshots", "verify", *where, "--keys", "wrong.txt")
    assert (code, err.count("\n")) == (4, 1)
    assert "no known key has signed" in err
    code, _, err = told(capsys, "snapshots", "list")
    assert (code, "say where the snapshots are" in err) == (2, True)
    code, _, err = told(capsys, "snapshots", "show", "77", *where, "--keys", "keys.txt")
    assert (code, "there is no snapshot '77'" in err) == (1, True)
    code, _, err = told(
        capsys, "snapshots", "show", "latest", "--in", f"{care.vault}-empty", "--keys", "keys.txt"
    )
    assert (code, "snapshots take" in err) == (1, True)


def test_plan_is_shown_with_its_keys_approved_once_and_cancelled(
    care: Care, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name and hash; a second yes, a wrong hash and an unknown plan change nothing."""
    url = ("--url", care.url)
    _, out, _ = told(capsys, "rollback", "list", *url, "--json")
    plan = json.loads(out)
    name, digest = plan["plan"], plan["hash"]
    code, out, _ = told(capsys, "rollback", "show", name, *url, "--keys")
    assert (code, out.count("stays known: a repeat is answered")) == (0, 2)
    yes = ("--reason", "doubled", "--as", "anna")
    code, _, err = told(capsys, "rollback", "approve", name, "--hash", "0" * 16, *yes, *url)
    assert (code, "hash is not that of this plan" in err) == (1, True)
    assert (
        told(capsys, "rollback", "approve", name, "--hash", digest[:16], "--without", "2", *yes, *url)[0]
        == 0
    )
    code, _, err = told(capsys, "rollback", "approve", name, "--hash", digest[:16], *yes, *url)
    assert (code, "is approved by anna; nothing was changed" in err) == (1, True)
    code, out, _ = told(capsys, "rollback", "cancel", name, "--reason", "wait", "--as", "ben", *url)
    assert (code, out) == (0, "cancelled; 0 of 1 lines were done and stay done\n")
    code, _, err = told(capsys, "rollback", "show", "none", *url)
    assert (code, "there is no roll-back plan 'none'" in err) == (1, True)
    code, _, err = told(capsys, "rollback", "approve", name, "--hash", digest, "--without", "x", *yes, *url)
    assert (code, "is not a list of line numbers" in err) == (2, True)
