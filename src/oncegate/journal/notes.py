"""Signed notes of C2SP: a text, an empty line, and one signature line a key. Checkpoints are such notes.

origin
size
root in base64
                                    (an empty line)
— name base64(key id and signature)
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from oncegate.errors import NoteRefused
from oncegate.journal.keys import Signer, Verifier

_MARK: Final = "— "  # an em dash and a space
SIGNATURES_MAX: Final = 100
NOTE_CHARS_MAX: Final = 1_000_000
_INTRODUCTION: Final = "oncegate key introduction"


class SignedNote(NamedTuple):
    """A text whose signatures were checked: `signed_by` are the known keys that signed it."""

    text: str
    signed_by: tuple[Verifier, ...]


class Checkpoint(NamedTuple):
    """The head of a log: its name, how many leaves it has, and the root of its Merkle tree."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Reads the three lines; further lines are passed over, as C2SP asks."""
        lines = text.split("\n")
        try:
            origin, size, root = lines[:3]
            found = cls(origin, int(size), base64.b64decode(root, validate=True))
        except ValueError:
            raise NoteRefused("not a checkpoint: origin, size and root are its first three lines") from None
        if not origin or len(found.root) != 32 or not text.startswith(found.text):
            raise NoteRefused("not a checkpoint: origin, size and root are its first three lines")
        return found


def sign_note(text: str, signers: Sequence[Signer]) -> str:
    """The text with a signature line for each signer."""
    if not signers:
        raise NoteRefused("no key signs the note; give at least one")
    if not text.endswith("\n") or any(char < " " and char != "\n" for char in text):
        raise NoteRefused("a note's text ends with a newline and has no other control characters")
    message = text.encode()
    lines = (
        f"{_MARK}{signer.name} {base64.b64encode(signer.key_id + signer.sign(message)).decode()}\n"
        for signer in signers
    )
    return f"{text}\n{''.join(lines)}"


def open_note(note: str, verifiers: Iterable[Verifier]) -> SignedNote:
    """The note's text, if a known key has signed it and no signature of a known key is wrong."""
    if len(note) > NOTE_CHARS_MAX:
        raise NoteRefused("the note is too long")
    text, gap, tail = note.rpartition("\n\n")
    if not gap or not tail.endswith("\n") or any(char < " " and char != "\n" for char in note):
        raise NoteRefused("not a signed note: the last empty line is followed by signature lines")
    text += "\n"
    known = {(verifier.name, verifier.key_id): verifier for verifier in verifiers}
    lines = tail[:-1].split("\n")
    if len(lines) > SIGNATURES_MAX:
        raise NoteRefused(f"the note has more than {SIGNATURES_MAX} signatures")
    signed_by: dict[Verifier, None] = {}
    for line in lines:
        name, key_id, signature = _read_signature(line)
        verifier = known.get((name, key_id))
        if verifier is None:
            continue  # of a key that is not ours to judge: a witness, or the next key
        if not verifier.verify(text.encode(), signature):
            raise NoteRefused(f"the signature of {name} is wrong: the note was changed")
        signed_by[verifier] = None
    if not signed_by:
        names = ", ".join(sorted({verifier.name for verifier in known.values()})) or "none given"
        raise NoteRefused(f"no known key has signed the note (known: {names}); compare the verifier keys")
    return SignedNote(text, tuple(signed_by))


def introduce(origin: str, old: Sequence[Signer], new: Signer) -> str:
    """A note that makes a new key known: the old keys and the new one sign it."""
    return sign_note(f"{_INTRODUCTION}\n{origin}\n{new.verifier.text}\n", [*old, new])


def follow(origin: str, known: Iterable[Verifier], introductions: Iterable[str]) -> tuple[Verifier, ...]:
    """The known keys and those that they introduced, in the order of the introductions."""
    trusted = dict.fromkeys(known)
    for introduction in introductions:
        lines = introduction.split("\n")
        if lines[:2] != [_INTRODUCTION, origin]:
            raise NoteRefused(f"not a key introduction of {origin}")
        new = Verifier.parse(lines[2])
        signed_by = open_note(introduction, [*trusted, new]).signed_by
        if new not in signed_by or len({*signed_by} - {new}) < 1:
            raise NoteRefused(f"the key {new.text} was not introduced by a known key and itself")
        trusted[new] = None
    return tuple(trusted)


def _read_signature(line: str) -> tuple[str, bytes, bytes]:
    name, gap, encoded = line.removeprefix(_MARK).partition(" ")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except ValueError:
        raw = b""
    if not line.startswith(_MARK) or not name or not gap or len(raw) < 5:
        raise NoteRefused("a line behind the last empty one is not a signature: — NAME BASE64")
    return name, raw[:4], raw[4:]
