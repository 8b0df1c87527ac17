"""No command prints a password, however its ledger's address is mistyped and wherever it stands."""

from __future__ import annotations

import pytest

from oncegate import open_store
from oncegate.cli.main import COMMANDS
from oncegate.errors import BadUrl
from tests.model.test_ledger_addresses import MISTYPED, SECRET

# Each command with the words that it needs before it looks for its ledger.
COMMON = {
    "record": ["-o", "out.jsonl"],
    "partners": ["list"],
    "entries": ["list"],
    "trace": ["abc"],
    "duplicates": ["list"],
    "held": ["list"],
    "quarantine": ["list"],
    "operators": ["list"],
    "endpoints": ["list"],
    "lanes": ["list"],
    "dead-letters": ["list"],
    "events": ["resend", "1", "--endpoint", "x", "--reason", "y"],
    "prune": ["--surface", "s", "--older-than", "90d"],
    "reconcile": ["--dry-run"],
    "worker": ["--app", "nowhere:gate"],
    "config": ["show"],
}
LEFT_OUT = {"demo", "bench", "chaos", "replay", "send"}  # no ledger of the user's
SHARE = 4  # each command gets every fourth address, and the commands together all of them
HAVE_URL = sorted(set(COMMANDS) - LEFT_OUT - {"config", "serve"})


def cannot_be_read(address: str) -> bool:
    """Others lead to a server that is not there; tests/stores/postgres has those."""
    try:
        open_store(address)
    except BadUrl:
        return True
    return False


REFUSED = [address for address in MISTYPED if cannot_be_read(address)]


def quiet(ended) -> str:
    return str(ended.out + ended.err)


def test_nearly_all_of_them_cannot_be_read():
    assert len(REFUSED) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("command", HAVE_URL)
def test_no_command_prints_the_password_of_a_mistyped_address(call, command, monkeypatch):
    """By --url, in the environment, and as a word where none belongs."""
    words = [command, *COMMON.get(command, [])]
    for address in REFUSED[HAVE_URL.index(command) % SHARE :: SHARE]:
        for given in ([*words, "--url", address], [*words, f"--url={address}"], [*words, address]):
            assert SECRET not in quiet(call(*given)), given
        if command == "dev":  # has a ledger of its own, and serves
            continue
        monkeypatch.setenv("ONCEGATE_URL", address)
        assert SECRET not in quiet(call(*words)), address
        monkeypatch.delenv("ONCEGATE_URL")


@pytest.mark.slow
@pytest.mark.parametrize("command", [["config", "show"], ["config", "check"], ["serve"], ["doctor"]])
def test_no_command_prints_the_password_of_the_settings(call, tmp_path, command):
    for address in REFUSED:
        (tmp_path / "oncegate.toml").write_text(f'url = "{address}"\n')
        assert SECRET not in quiet(call(*command)), address


def test_a_word_where_a_command_belongs_is_masked(call):
    for address in REFUSED:
        assert SECRET not in quiet(call(address)), address
