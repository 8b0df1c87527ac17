"""Everything that is fuzzed ends in an answer or in an error raised on purpose, whatever comes in."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.fuzzing import fuzz
from lab.fuzzing import targets as fuzz_targets
from oncegate.signatures import StandardWebhooks
from tests.support.properties import tried

# Pieces that parsers care about, in any order: nearer to what they take than plain bytes.
PIECES = st.sampled_from(
    [*fuzz_targets.SAMPLES, b"{", b"}", b":", b".", b'"', b"\n", b",", b"v1,", b"2026-06-01", b"T07:00:00Z"]
)
INPUTS = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=6).map(b"".join))


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_target_takes_every_sample(name: str) -> None:
    for sample in fuzz_targets.SAMPLES:
        fuzz_targets.TARGETS[name](sample)


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
@pytest.mark.hypothesis
def test_target_takes_anything(name: str) -> None:
    @tried(40)
    @given(INPUTS)
    def take(data: bytes) -> None:
        fuzz_targets.TARGETS[name](data)

    take()


def test_targets_notice_what_they_are_there_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier that took anything, or a reader that raised something else, would be seen."""
    monkeypatch.setattr(StandardWebhooks, "verify", lambda *_: None)
    with pytest.raises(AssertionError, match="forged"):
        fuzz_targets.signatures(b"")
    monkeypatch.setattr(fuzz_targets, "parse_timestamp", lambda text: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        fuzz_targets.timestamps(b"2026")


def test_without_atheris_it_is_said_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "_has_atheris", lambda: False)
    monkeypatch.setattr(sys, "argv", ["fuzz.py"])

    assert fuzz.main() == 1
    assert "pip install 'oncegate[fuzz]'" in capsys.readouterr().err
