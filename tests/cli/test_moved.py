"""Commands that moved are refused with one line that names the new one."""

from __future__ import annotations

import pytest

from lab.__main__ import main as lab_main


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (("chaos",), "python -m lab chaos run"),
        (("chaos", "run", "--minutes", "10"), "python -m lab chaos run"),
        (("chaos", "replay", "4711"), "python -m lab chaos replay"),
        (("chaos", "museum"), "python -m lab broken-gates"),
        (("help", "chaos"), "python -m lab chaos run"),
        (("bench", "postgres", "--quick"), "python -m lab bench postgres"),
        (("bench", "http"), "python -m lab bench http"),
        (("bench", "feed"), "python -m lab bench feed"),
        (("bench", "sender"), "python -m lab bench sender"),
        (("bench", "all"), "python -m lab bench all"),
        (("demo", "--incident", "retry-storm"), "python -m lab incidents NAME"),
        (("demo", "--incident=retry-storm"), "python -m lab incidents NAME"),
        (("demo", "--keep", "x", "--list-incidents"), "python -m lab incidents --list"),
        (("replay", "x.jsonl", "--simulate"), "python -m lab replay FILE"),
    ],
)
def test_an_old_command_names_the_new_one_and_ends_with_code_2(call, words, new):
    """A program that calls the old command gets one line, and nothing is run."""
    ended = call(*words)

    assert ended.code == 2
    assert f"moved: run '{new}' in a clone" in ended.complaint


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (("caretake", "--app", "bookings:gate"), "run 'oncegate worker --app module:gate'"),
        (("help", "caretake"), "run 'oncegate worker --app module:gate'"),
        (("deliver", "--url", "sqlite:///x.db"), "run 'oncegate worker --only deliveries,pruning'"),
        (("deliver", "--until-idle"), "instead of --until-idle add --once"),
    ],
)
def test_background_commands_name_the_worker_and_end_with_code_2(call, words, new):
    """One command does all background work; the old ones do nothing."""
    ended = call(*words)

    assert (ended.code, new in ended.complaint) == (2, True)


def test_an_address_that_is_called_like_a_moved_command_is_not_one(call):
    """Only the words of the command count, not the values of its options."""
    ended = call("bench", "gate", "--url", "all")

    assert "moved" not in ended.err


@pytest.mark.parametrize(
    "command", ["bench", "chaos", "broken-gates", "incidents", "replay", "path", "wheel"]
)
def test_every_command_of_the_lab_has_a_help(capsys, command):
    """The names in the answers above lead somewhere."""
    assert lab_main([command, "--help"]) == 0
    assert f"usage: python -m lab {command}" in capsys.readouterr().out
