"""Checks proofs of an oncegate journal. Needs Python 3.9 or newer and nothing else.

    python3 verify.py PROOF.json KEY           a proof of inclusion or consistency
    python3 verify.py --head HEAD.txt KEY      the signature of a head

KEY is a verifier key, name+id+base64, or a file with one a line. Get it from its owner, not from the proof.
"""

from __future__ import annotations

import hashlib
import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

Point = tuple[int, int, int, int]
Key = tuple[str, bytes, bytes]

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)


def sha256(data: bytes) -> bytes:
    return hashlib.new("sha256", data).digest()


class Refused(Exception):
    """The proof does not hold."""


def add(a: Point, b: Point) -> Point:  # Ed25519 (RFC 8032): x = X/Z, y = Y/Z, x * y = T/Z
    first, second = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    third, fourth = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = second - first, fourth - third, fourth + third, second + first
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number: int, point: Point) -> Point:
    made = (0, 1, 1, 0)
    while number:
        if number & 1:
            made = add(made, point)
        point, number = add(point, point), number >> 1
    return made


def point_of(raw: bytes) -> Point:
    y, sign = int.from_bytes(raw, "little") & (1 << 255) - 1, raw[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT_OF_MINUS_1 % P
    if y >= P or x * x % P != square or (x == 0 and sign):
        raise Refused("a key or signature is not a point of the curve")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    s = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or s >= Q:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % Q
    left, right = times(s, BASE), add(point_of(signature[:32]), times(h, point_of(key)))
    return all((left[i] * right[2] - right[i] * left[2]) % P == 0 for i in (0, 1))


def read_key(text: str) -> Key:
    name, key_id, encoded = text.strip().split("+", 2)
    raw = b64decode(encoded)
    wanted = sha256(name.encode() + b"\n" + raw)[:4]
    if raw[:1] != b"\1" or len(raw) != 33 or wanted.hex() != key_id:
        raise Refused("not a verifier key: " + text.strip())
    return name, wanted, raw[1:]


def open_note(note: str, keys: list[Key]) -> tuple[str, list[Key]]:
    """The text, and the keys that signed it; a wrong signature of a known key refuses the note."""
    text, gap, tail = note.rpartition("\n\n")
    text, signers = text + "\n", list[Key]()
    for line in tail.splitlines():
        mark, name, encoded = line.split(" ")
        raw = b64decode(encoded)
        for key in keys:
            if mark == "\u2014" and (name, raw[:4]) == key[:2]:
                if not is_signed(key[2], text.encode(), raw[4:]):
                    raise Refused("the signature of " + name + " is wrong")
                signers.append(key)
    if not gap or not signers:
        raise Refused("no key that you gave has signed this")
    return text, signers


def open_head(note: str, keys: list[Key]) -> tuple[str, int, bytes]:
    origin, size, root = open_note(note, keys)[0].split("\n")[:3]
    return origin, int(size), b64decode(root)


def with_introduced(keys: list[Key], notes: list[str]) -> list[Key]:
    """Keys that a known key and the new key itself introduced."""
    keys = list(keys)
    for note in notes:
        new = read_key(note.split("\n")[2])
        signers = open_note(note, [*keys, new])[1]
        if not note.startswith("oncegate key introduction\n") or new not in signers or len(signers) < 2:
            raise Refused("a key was not introduced by one that you gave")
        keys.append(new)
    return keys


def node(left: bytes, right: bytes) -> bytes:  # Merkle trees (RFC 6962)
    return sha256(b"\1" + left + right)


def check_inclusion(leaf: bytes, index: int, size: int, path: list[bytes], root: bytes) -> None:
    found, last = leaf, size - 1
    for one in path:
        if index & 1 or index == last:
            found = node(one, found)
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            found = node(found, one)
        index, last = index >> 1, last >> 1
    if last or found != root:
        raise Refused("the record is not in the tree that the head signs")


def check_consistency(old: int, new: int, path: list[bytes], old_root: bytes, new_root: bytes) -> None:
    if old == new:
        is_good = not path and old_root == new_root
    else:
        path = ([old_root] if not old & (old - 1) else []) + path
        index, last = old - 1, new - 1
        while index & 1:
            index, last = index >> 1, last >> 1
        first = second = path[0] if path else b""
        for one in path[1:]:
            if index & 1 or index == last:
                first, second = node(one, first), node(one, second)
                while index and not index & 1:
                    index, last = index >> 1, last >> 1
            else:
                second = node(second, one)
            index, last = index >> 1, last >> 1
        is_good = 0 < old < new and not last and (first, second) == (old_root, new_root)
    if not is_good:
        raise Refused("the old head is not the beginning of the new one")


def check(proof: dict[str, Any], keys: list[Key]) -> str:
    keys = with_introduced(keys, proof.get("introductions", []))
    path = [b64decode(one) for one in proof["path"]]
    if proof["oncegate"] == "consistency/1":
        origin, old, old_root = open_head(proof["old"], keys)
        other, new, new_root = open_head(proof["new"], keys)
        if origin != other:
            raise Refused("the heads belong to two journals")
        check_consistency(old, new, path, old_root, new_root)
        return f"the first {old} of {new} records of {origin} are the same"
    origin, size, root = open_head(proof["head"], keys)
    if not 0 <= proof["index"] < size:
        raise Refused("the head has no record of this number")
    check_inclusion(sha256(b"\0" + proof["leaf"].encode()), proof["index"], size, path, root)
    leaf, opened = json.loads(proof["leaf"]), dict(proof.get("opened") or {})
    salt = b64decode(opened.pop("salt", ""))
    for name, value in opened.items():
        content = value.encode() if name == "note" else b64decode(value)
        if leaf[name] is None or b64decode(leaf[name]) != sha256(salt + name[:1].encode() + content):
            raise Refused(f"the {name} is not the one that was sealed")
    about = ", ".join(f"{name}={leaf[name]}" for name in ("entry", "kind", "at", "actor", "position"))
    return f"record {proof['index']} of {size} in {origin}: {about}"


def main(arguments: list[str]) -> int:
    try:
        what, last = Path(arguments[-2]).read_text("utf-8"), Path(arguments[-1])
        text = last.read_text("utf-8") if last.exists() else arguments[-1]
        keys = [read_key(line) for line in text.splitlines() if line.strip() and line[0] != "#"]
        if arguments[0] == "--head":
            print("good: head of {} with {} records".format(*open_head(what, keys)))
        found = [] if arguments[0] == "--head" else json.loads(what)
        for proof in found if isinstance(found, list) else [found]:
            print("good:", check(proof, keys))
    except (Refused, ValueError, KeyError, IndexError, TypeError, OSError) as error:
        print(f"REFUSED: {error or type(error).__name__}" if arguments else __doc__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
