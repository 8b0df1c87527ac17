"""Which ledger a command is about: --url, ONCEGATE_URL, settings in this folder, the default."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from oncegate.cli.ledger import command_for
from oncegate.service.config_loader import read_configuration

FILE = "oncegate.toml"


@pytest.fixture
def settings(call, tmp_path):
    """Writes oncegate.toml into the folder of the commands."""

    def write(text: str) -> None:
        (tmp_path / FILE).write_text(text, "utf-8")

    return write


def _address(call, *words: str) -> str:
    """What doctor says about where it looks."""
    lines = map(json.loads, call("doctor", "--json", *words).out.splitlines())
    return str(next(line["value"] for line in lines if line["what"] == "address"))


def test_commands_look_at_the_ledger_that_the_service_in_this_folder_has(call, settings, tmp_path):
    """Given settings that name a ledger, all commands take it, and none makes another."""
    settings('url = "sqlite:///orders.db"\n')

    assert "orders.db was created" in call("migrate").err

    for words in (
        ["entries", "list"],
        ["doctor"],
        ["lanes", "list"],
        ["held", "list"],
        ["partners", "list"],
    ):
        assert call(*words).code == 0, words
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {FILE, "orders.db"}


def test_what_is_nearer_to_the_command_wins_and_doctor_says_what_did(call, settings, monkeypatch):
    """--url, then ONCEGATE_URL, then the file, then the default; an empty variable is none."""
    assert _address(call) == "sqlite:///oncegate.db, nothing names another"
    settings('# the service\nurl = "sqlite:///of-file.db"\n')
    assert _address(call) == f"sqlite:///of-file.db, named by {FILE}:2"
    monkeypatch.setenv("ONCEGATE_URL", "")
    assert _address(call) == f"sqlite:///of-file.db, named by {FILE}:2"
    monkeypatch.setenv("ONCEGATE_URL", "sqlite:///of-variable.db")
    assert _address(call) == "sqlite:///of-variable.db, named by ONCEGATE_URL"
    assert _address(call, "--url", "sqlite:///given.db") == "sqlite:///given.db, named by --url"


@pytest.mark.parametrize("variable", [None, "", "sqlite:///of-variable.db"])
@pytest.mark.parametrize("text", ["", 'url = ""\n', 'url = "sqlite:///of-file.db"\n'])
def test_service_and_commands_agree_whatever_is_set(call, settings, monkeypatch, variable, text):
    """`config show` and `doctor` name the same address from the same place."""
    settings(text)
    variables = {} if variable is None else {"ONCEGATE_URL": variable}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    served = read_configuration(None, variables)
    url, source = next((one.value, one.source) for one in served.origins if one.name == "url")

    told = _address(call)

    assert told.startswith(f"{url or 'sqlite:///oncegate.db'}, ")
    assert told.endswith("nothing names another" if source == "default" else f"named by {source}")
    assert f"url = {url}  ({source})" in call("config", "show").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nport = \n", f"{FILE}:2: Invalid value"),
        ("\nurl = 3\n", f"{FILE}:2: url: Expected `str`, got `int`"),
        ('urll = "sqlite:///orders.db"\n', f"{FILE}:1: urll is not a setting; did you mean url?"),
        ('url = "orders.db"\n', f"{FILE}:1: 'orders.db' is not a ledger's address"),
        ('url = "mysql://me:canary@there/db"\n', f"{FILE}:1: mysql://"),
    ],
)
def test_a_mistake_about_the_ledger_is_told_with_its_line(call, settings, tmp_path, text, said):
    """It ends with the code for wrong settings before anything is opened; --url gets around it."""
    settings(text)
    for words in (["entries", "list"], ["migrate"], ["doctor"], ["worker"], ["partners", "list"]):
        ended = call(*words)
        assert ended.code == 2, words
        assert said in ended.complaint
        assert "canary" not in ended.complaint
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert call("migrate", "--url", "sqlite:///around.db").code == 0


def test_a_file_that_cannot_be_read_is_told(call, tmp_path):
    (tmp_path / FILE).mkdir()
    ended = call("entries", "list")
    assert ended.code == 2
    assert f"{FILE} cannot be read" in ended.complaint


def test_a_mistake_elsewhere_in_the_file_keeps_nobody_from_the_ledger(call, settings):
    """Whoever looks because the service does not start must not be told only that it does not start."""
    settings('url = "sqlite:///orders.db"\n[surfaces.a]\nkey = 3\n[unheard]\nof = 1\n')
    assert call("migrate").code == 0
    assert call("entries", "list").code == 0
    assert call("config", "check").code == 2


def test_missing_ledger_of_the_settings_is_named_with_its_line(call, settings, tmp_path):
    settings('url = "sqlite:///orders.db"\n')
    ended = call("entries", "list")
    assert ended.code == 3
    assert f"no ledger at sqlite:///orders.db, which {FILE}:1 names; if there never" in ended.complaint
    assert "create it with: oncegate migrate" in ended.complaint
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_the_page_and_partners_take_the_ledger_of_the_file_they_are_given(call, tmp_path):
    """Given settings elsewhere, --config alone says where to look; the next step names that ledger."""
    other = tmp_path / "other.toml"
    other.write_text('url = "sqlite:///orders.db"\n', "utf-8")
    call("migrate", "--url", "sqlite:///orders.db")
    ended = call("page", "--config", str(other))
    assert ended.code == 2
    assert "oncegate operators add NAME --role approver --url sqlite:///orders.db" in ended.complaint
    added = call("partners", "add", "p", "--tenant", "t", "--role", "send", "--config", str(other))
    assert added.code == 0
    assert "p  t  send" in call("partners", "list", "--url", "sqlite:///orders.db").out


def test_no_file_is_looked_into_unless_it_decides(call, settings, monkeypatch):
    """Commands start quickly: what reads settings is not even imported where the address is given."""
    settings("broken [")
    call("migrate", "--url", "sqlite:///given.db")
    monkeypatch.setitem(sys.modules, "oncegate.service.config_loader", None)  # importing it would fail
    assert call("entries", "list", "--url", "sqlite:///given.db").code == 0
    monkeypatch.setenv("ONCEGATE_URL", "sqlite:///given.db")
    assert call("entries", "list").code == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app:tulip@host/db", "postgresql://app:…@host/db"),
        ("postgresql://app:@tulip@host/db", "postgresql://app:…@host/db"),
        ("postgresql://app:a?tulip@host/db", "postgresql://app…"),
        ("postgresql://host:5432/db?password=a@tulip", "postgresql://host:5432/db?password=…"),
        (
            "postgresql://app@host/db?sslmode=require&x=1&password=tulip",
            "postgresql://app@host/db?sslmode=require&x=…&password=…",
        ),
        ("sqlite:////var/lib/a:b@c.db", "sqlite:////var/lib/a:b@c.db"),
    ],
)
def test_next_steps_name_the_ledger_without_any_part_of_its_password(url, shown):
    """Nothing of what stands before the last @ is repeated, whatever the password holds."""
    assert shlex.split(command_for("oncegate migrate", url))[-1] == shown
