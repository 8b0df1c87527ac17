"""Commands that have moved: each is answered with one line that names the new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncegate.errors import ConfigError

# By the first words of the command, or by the command and one of its options.
_MOVED: Final[dict[tuple[str, ...], tuple[str, str]]] = {
    ("chaos", "museum"): ("broken-gates", "make broken-gates"),
    ("chaos", "replay"): ("chaos replay", ""),
    ("chaos",): ("chaos run", "make soak"),
    ("bench", "postgres"): ("bench postgres", "make bench STORE=postgres"),
    ("bench", "http"): ("bench http", ""),
    ("bench", "feed"): ("bench feed", ""),
    ("bench", "sender"): ("bench sender", ""),
    ("bench", "all"): ("bench all", "make bench"),
    ("demo", "--incident"): ("incidents NAME", "make incidents"),
    ("demo", "--list-incidents"): ("incidents --list", ""),
    ("replay", "--simulate"): ("replay FILE", ""),
}

_REPLACED: Final = {
    "caretake": "oncegate worker --app module:gate",
    "deliver": "oncegate worker --only deliveries,pruning",
    "dynamodb": "oncegate held list",
}


def refuse_moved(words: Sequence[str]) -> None:
    """Raises ConfigError for a command that is in the lab now, or has another name."""
    called = [word.partition("=")[0] for word in words if word not in ("help", "--debug")]
    if called and called[0] in _REPLACED:
        hint = "; instead of --until-idle add --once" if "--until-idle" in called else ""
        raise ConfigError(f"'oncegate {called[0]}' was replaced: run '{_REPLACED[called[0]]}'{hint}")
    for old, (new, target) in _MOVED.items():
        if called[:1] == [old[0]] and _is_meant(old[1:], called[1:]):
            told = f"'oncegate {' '.join(old)}' moved: run 'python -m lab {new}' in a clone"
            raise ConfigError(f"{told} ({target})" if target else told)


def _is_meant(old: tuple[str, ...], called: list[str]) -> bool:
    if old and old[0].startswith("--"):
        return old[0] in called
    return tuple(called[: len(old)]) == old
