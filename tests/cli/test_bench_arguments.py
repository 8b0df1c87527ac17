"""`oncegate bench`: mistakes in what it is told end at once, in words."""

from __future__ import annotations

import pytest

from oncegate.cli.bench import _concurrencies


@pytest.mark.parametrize("text", ["a", "1,b", "0", "-1", "", "1,,2", "99999", "1.5"])
def test_concurrency_that_is_no_number_is_told_in_words(call, text):
    """Not by the name of a function of ours."""
    ended = call("bench", "gate", f"--concurrency={text}")

    assert ended.code == 2
    assert "is not a number from 1 to 10000" in ended.err
    assert "_concurrencies" not in ended.err


def test_missing_folder_is_told_with_code_three(call, tmp_path):
    """Before anything is measured."""
    ended = call("bench", "gate", "--concurrency", "1", "--url", f"sqlite:///{tmp_path}/nodir/x.db")

    assert ended.code == 3
    assert "there is no folder" in ended.complaint


def test_another_address_is_told_with_code_two(call):
    """It measures the embedded ledger only."""
    ended = call("bench", "gate", "--concurrency", "1", "--url", "postgresql://db/shop")

    assert ended.code == 2
    assert "is no sqlite:/// address" in ended.complaint


def test_a_number_that_is_given_twice_is_measured_once():
    """Otherwise two samples of a round would stand under one name."""
    assert _concurrencies("4,1,4") == (4, 1)
