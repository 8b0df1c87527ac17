"""Keys and signed notes: known answers of other implementations, and what must be refused."""

from __future__ import annotations

import base64
import shlex
import sys
from pathlib import Path

import pytest

from oncegate.errors import BadSecret, ConfigError, NoteRefused
from oncegate.journal.keys import (
    PrivateKey,
    Verifier,
    load_signer,
    load_signers,
    load_verifiers,
    write_private,
)
from oncegate.journal.notes import Checkpoint, follow, introduce, open_note, sign_note

# The published example of golang.org/x/mod/sumdb/note.
PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETER_PRIVATE = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
TEXT = (
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
)
NOTE = (
    TEXT + "\n— PeterNeumann"
    " x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


def test_the_published_note_is_signed_and_opened_byte_for_byte() -> None:
    signer = PrivateKey.parse(PETER_PRIVATE)
    assert signer.verifier.text == PETER
    assert signer.reveal() == PETER_PRIVATE
    assert sign_note(TEXT, [signer]) == NOTE
    assert open_note(NOTE, load_verifiers(f"# the log\n{PETER}\n")).text == TEXT


def test_a_key_with_a_plus_in_its_base64_is_read() -> None:
    assert Verifier.parse("TEST+7997405c+AQcC+FTVKf0jlTdHDY3rbevmnKxxPjigCXlVtGe6RIr6").name == "TEST"


@pytest.mark.parametrize("at", range(0, len(NOTE), 7))
def test_a_changed_note_is_refused(at: int) -> None:
    changed = NOTE[:at] + ("x" if NOTE[at] != "x" else "y") + NOTE[at + 1 :]
    with pytest.raises(NoteRefused):
        open_note(changed, [Verifier.parse(PETER)])


def test_signatures_of_unknown_keys_are_passed_over() -> None:
    ours, witness = PrivateKey.generate("log"), PrivateKey.generate("witness")
    note = sign_note("a\n", [witness, ours])
    assert open_note(note, [ours.verifier]).signed_by == (ours.verifier,)
    with pytest.raises(NoteRefused, match="no known key has signed"):
        open_note(note, [PrivateKey.generate("log").verifier])


@pytest.mark.parametrize("text", ["", "no newline", "tab\there\n"])
def test_a_text_that_cannot_be_a_note_is_not_signed(text: str) -> None:
    with pytest.raises(NoteRefused):
        sign_note(text, [PrivateKey.generate("log")])


@pytest.mark.parametrize("cut", range(0, len(PETER), 5))
def test_a_damaged_verifier_key_is_refused(cut: int) -> None:
    with pytest.raises(BadSecret):
        Verifier.parse(PETER[:cut] + PETER[cut + 1 :])


def test_a_key_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "journal.key"
    key = PrivateKey.generate("shop.example/log")
    write_private(path, key)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_signer(f"file:{path}").key_id == key.key_id
    with pytest.raises(ConfigError, match="new file"):
        write_private(path, key)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_signer(f"file:{path}")


def test_errors_and_repr_never_show_the_private_key(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = PETER_PRIVATE.rpartition("+")[2]
    assert secret not in repr(PrivateKey.parse(PETER_PRIVATE))
    monkeypatch.setenv("SEAL", PETER_PRIVATE[:-1] + "0")
    with pytest.raises(BadSecret) as caught:
        load_signer("env:SEAL")
    assert secret[:20] not in str(caught.value)


@pytest.mark.parametrize(
    "where", ["journal.key", "file:", "env:", "env:NOT_SET", "command:", "s3:x", "file:/no/x"]
)
def test_a_place_without_a_key_is_named(where: str) -> None:
    with pytest.raises(ConfigError):
        load_signer(where)


PROGRAM = """
import base64, sys
from oncegate.journal.keys import PrivateKey
key = PrivateKey.parse(sys.argv[1])
if sys.argv[2] == "verifier":
    print(key.verifier.text)
else:
    print(base64.b64encode(key.sign(sys.stdin.buffer.read())).decode())
"""


def test_a_program_signs(tmp_path: Path) -> None:
    script = tmp_path / "sign.py"
    script.write_text(PROGRAM)
    signer = load_signer("command:" + shlex.join([sys.executable, str(script), PETER_PRIVATE]))
    assert sign_note(TEXT, [signer]) == NOTE


def test_a_program_that_signs_something_else_is_refused(tmp_path: Path) -> None:
    other = base64.b64encode(PrivateKey.generate("PeterNeumann").sign(TEXT.encode())).decode()
    script = tmp_path / "sign.sh"
    script.write_text(f'#!/bin/sh\ntest "$1" = sign && echo {other} || echo {PETER}\n')
    script.chmod(0o700)
    signer = load_signer(f"command:{script}")
    with pytest.raises(ConfigError, match="does not fit"):
        sign_note(TEXT, [signer])


def test_two_keys_sign_in_the_overlap(tmp_path: Path) -> None:
    keys = [PrivateKey.generate("log") for _ in range(2)]
    for number, key in enumerate(keys):
        write_private(tmp_path / f"{number}.key", key)
    signers = load_signers(f"file:{tmp_path}/0.key, file:{tmp_path}/1.key")
    note = sign_note("head\n", signers)
    assert {*open_note(note, [key.verifier for key in keys]).signed_by} == {key.verifier for key in keys}


def test_a_new_key_is_trusted_only_through_a_known_one() -> None:
    first, second, third = (PrivateKey.generate("log") for _ in range(3))
    chain = [introduce("log", [first], second), introduce("log", [second], third)]
    assert follow("log", [first.verifier], chain) == (first.verifier, second.verifier, third.verifier)
    with pytest.raises(NoteRefused, match="not introduced"):
        follow("log", [first.verifier], chain[1:])
    with pytest.raises(NoteRefused, match="not a key introduction"):
        follow("another", [first.verifier], chain)
    forged = sign_note(chain[0].partition("\n\n")[0] + "\n", [second])
    with pytest.raises(NoteRefused, match="not introduced"):
        follow("log", [first.verifier], [forged])


def test_a_checkpoint_is_read_back() -> None:
    head = Checkpoint("shop.example/log", 12_345, bytes(range(32)))
    assert Checkpoint.parse(head.text) == head
    assert Checkpoint.parse(head.text + "extension\n") == head
    for wrong in ("", "a\n1\n", "a\n01\n" + head.text.split("\n")[2] + "\n", "a\n-1\nAA==\n"):
        with pytest.raises(NoteRefused):
            Checkpoint.parse(wrong)
