"""Trees of RFC 6962 against known answers, proofs from a ledger, and the auditor that stands alone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from oncegate.journal import auditor
from oncegate.journal.keys import PrivateKey
from oncegate.journal.notes import introduce, sign_note
from oncegate.journal.proofs import prove_consistency, prove_entry
from oncegate.journal.sealer import Sealer
from oncegate.journal.tree import (
    CompactRange,
    consistency_path,
    inclusion_path,
    is_consistent,
    is_included,
    leaf_hash,
    node_hash,
    range_hash,
)
from tests.journal.conftest import SealedLedger

# The leaves and roots that Certificate Transparency's implementations share as test data.
LEAVES = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def tree_of(hashes: list[bytes]) -> Any:
    def subtree(height: int, number: int) -> bytes:
        if height == 0:
            return hashes[number]
        return node_hash(subtree(height - 1, 2 * number), subtree(height - 1, 2 * number + 1))

    return subtree


def test_roots_are_those_of_other_implementations() -> None:
    made = CompactRange()
    hashes = [leaf_hash(leaf) for leaf in LEAVES]
    for count, root in enumerate(ROOTS, 1):
        made.append(hashes[count - 1])
        assert made.root().hex() == root
        assert range_hash(tree_of(hashes), 0, count).hex() == root


def test_every_proof_of_small_trees_holds_and_no_other() -> None:
    hashes = [leaf_hash(bytes([number])) for number in range(34)]
    subtree = tree_of(hashes)
    roots = [range_hash(subtree, 0, size) for size in range(35)]
    for size in range(1, 34):
        for index in range(size):
            path = inclusion_path(subtree, index, size)
            assert is_included(hashes[index], index, size, path, roots[size])
            auditor.check_inclusion(hashes[index], index, size, path, roots[size])
            assert not is_included(hashes[index], index ^ 1, size, path, roots[size]) or size == 1
            assert not is_included(hashes[index], index, size, [*path, roots[1]], roots[size])
        for old in range(1, size + 1):
            path = consistency_path(subtree, old, size)
            assert is_consistent(old, size, path, roots[old], roots[size])
            auditor.check_consistency(old, size, path, roots[old], roots[size])
            assert not is_consistent(old, size, path, roots[old], roots[size + 1])
            with pytest.raises(auditor.Refused):
                auditor.check_consistency(old, size, path, roots[old - 1], roots[size])


def test_the_auditor_knows_the_signatures_of_rfc_8032() -> None:
    key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b"
    )
    assert auditor.is_signed(key, b"", signature)
    assert not auditor.is_signed(key, b"x", signature)
    made = PrivateKey.generate("log")
    for number in range(5):
        message = bytes([number]) * number
        good = made.sign(message)
        assert auditor.is_signed(made.verifier.raw, message, good)
        bad = bytearray(good)
        bad[random.Random(number).randrange(32, 64)] ^= 1
        assert not auditor.is_signed(made.verifier.raw, message, bytes(bad))


@pytest.mark.slow
def test_a_proof_is_small_and_checked_by_a_program_that_imports_nothing_of_ours(
    sealed: SealedLedger, tmp_path: Path
) -> None:
    sealed.fill(20)
    sealed.seal(batch_records=8)
    with sealed.store.look() as session:
        proofs = prove_entry(session, 4)
        open_proofs = prove_entry(session, 5, with_content=True)
        between = prove_consistency(session, 8, 20)
    assert max(len(json.dumps(proof)) for proof in proofs) < 2048
    script, key = tmp_path / "verify.py", tmp_path / "keys.txt"
    script.write_text(Path(auditor.__file__).read_text("utf-8"))
    key.write_text("# the shop's key\n" + sealed.key.verifier.text + "\n")
    for name, proof in (("a", proofs), ("b", open_proofs), ("c", between)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(proof))
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script), str(file), str(key)], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("good: ")


def test_the_auditor_refuses_what_was_changed(sealed: SealedLedger) -> None:
    sealed.fill(9)
    sealed.seal()
    keys = [auditor.read_key(sealed.key.verifier.text)]
    with sealed.store.look() as session:
        (proof,) = prove_entry(session, 4, with_content=True)
    assert "entry=4" in auditor.check(proof, keys)
    leaf = json.loads(proof["leaf"])
    changed = [
        {**proof, "index": proof["index"] ^ 1},
        {**proof, "path": proof["path"][:-1]},
        {**proof, "leaf": proof["leaf"].replace(leaf["actor"], "mallory")},
        {**proof, "opened": {**proof["opened"], "note": "another"}},
        {**proof, "head": proof["head"].replace("\n9\n", "\n8\n")},
        {**proof, "head": sign_note(proof["head"].partition("\n\n")[0] + "\n", [PrivateKey.generate("x")])},
    ]
    for one in changed:
        with pytest.raises(auditor.Refused):
            auditor.check(one, keys)


def test_the_auditor_follows_a_key_that_was_introduced(sealed: SealedLedger) -> None:
    sealed.fill(3)
    sealed.seal()
    new = PrivateKey.generate("shop.example/log")
    Sealer(sealed.store, sealed.clock, [sealed.key, new]).run_once(at_once=True)
    sealed.fill(3, 3)
    Sealer(sealed.store, sealed.clock, [new]).run_once(at_once=True)
    with sealed.store.look() as session:
        (proof,) = prove_entry(session, 5)
    assert auditor.check(proof, [auditor.read_key(sealed.key.verifier.text)])
    stranger = PrivateKey.generate("shop.example/log")
    forged = {**proof, "introductions": [introduce("shop.example/log", [stranger], new)]}
    with pytest.raises(auditor.Refused):
        auditor.check(forged, [auditor.read_key(sealed.key.verifier.text)])


def test_the_auditor_is_short_enough_to_be_read() -> None:
    text = Path(auditor.__file__).read_text("utf-8")
    assert text.count("\n") < 200
    assert "oncegate." not in text.replace("oncegate journal", "")
    assert sha256(b"").digest() == range_hash(tree_of([]), 0, 0)
