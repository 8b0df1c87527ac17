"""Which values of an event may stand in a recording: rules by path, and what happens without one.

Everything that no rule names is replaced by a keyed hash: repeats, conflicts and keys survive, and nothing
can be read. A surface without rules has no payloads in its recording at all. Must never let a secret
through, whatever a rule says: a field that is named like one, or a text that looks like one, is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.model.paths import parse_path
from oncegate.model.surface import SurfaceRule
from oncegate.model.template import FieldKind
from oncegate.recorder.pseudonyms import Pseudonyms

PATHS_MAX: Final = 500
ANY: Final = "*"  # a component that stands for every element of a list and every member of an object


class Action(Enum):
    """What is done with a value."""

    KEEP = "keep"
    HASH = "hash"
    MASK = "mask"
    DROP = "drop"


_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|secret|token|apikey|authori[sz]ation|signature|credential|privatekey|cookie|sessionid"
    r"|^(auth|pin|cvv|cvc|otp|hmac|jwt)$"
)
_SECRET_TEXT: Final = re.compile(
    r"whsec_|whsk_|-----BEGIN |\b(?:Bearer|Basic)\s+\S|\beyJ[\w-]{5,}\.[\w-]{5,}\."
    r"|\b(?:sk|rk)_(?:live|test)_|\bgh[oprsu]_\w{20}|\bxox[abprs]-|\bAKIA[0-9A-Z]{16}|\bv1a?,[A-Za-z0-9+/]{20}"
)
# A time as senders write it; anything else in a field for times is no time and may be anything.
_TIME_LIKE: Final = re.compile(r"[0-9TtZz:.+\- ]{1,40}")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one surface: paths such as `customer.name` or `lines.*.price`, by what is done there.

    A rule holds for everything below its path; the longer path counts. `rest` is for what no path names.
    `tenant` may be kept or hashed. `type` names the field that says what kind of event it is, `occurred_at`
    the one with its time, where no gate is at hand to say so; both are kept.
    """

    keep: Collection[str] = ()
    hash: Collection[str] = ()
    mask: Collection[str] = ()
    drop: Collection[str] = ()
    rest: str = "hash"
    tenant: str = "hash"
    type: str | None = None
    occurred_at: str | None = None

    def __post_init__(self) -> None:
        if self.rest not in [action.value for action in Action]:
            raise ConfigError(f"rest={self.rest!r} cannot be used; choose keep, hash, mask or drop")
        if self.tenant not in ("keep", "hash"):
            raise ConfigError(f"tenant={self.tenant!r} cannot be used; choose keep or hash")
        self.paths()

    def paths(self) -> dict[tuple[str, ...], Action]:
        """Every path with its action; raises ConfigError for what cannot be a rule."""
        found: dict[tuple[str, ...], Action] = {}
        for action in Action:
            for text in _texts(action, getattr(self, action.value)):
                path = parse_path(text)
                if found.setdefault(path, action) is not action:
                    raise ConfigError(
                        f"{text[:60]!r} has two rules, {found[path].value} and {action.value}"
                    )
                if action is Action.KEEP and any(is_secret_name(name) for name in path):
                    raise ConfigError(
                        f"{text[:60]!r} is named like a secret and cannot be kept; hash or drop it"
                    )
        for named in (self.type, self.occurred_at):
            if named is not None:
                found.setdefault(parse_path(named), Action.KEEP)
        if len(found) > PATHS_MAX:
            raise ConfigError(f"{len(found)} rules for one surface; give at most {PATHS_MAX}")
        return found


def _texts(action: Action, given: object) -> Iterable[str]:
    if isinstance(given, str) or not isinstance(given, Collection):
        raise ConfigError(f"{action.value}= is a list of paths, such as ['customer.name']")
    for text in given:
        if not isinstance(text, str):
            raise ConfigError(f"{action.value}= is a list of paths, not of {type(text).__name__}")
        yield text


def is_secret_name(name: str) -> bool:
    """Whether a field of this name is taken for a secret."""
    return _SECRET_NAME.search(name.lower().replace("_", "").replace("-", "")) is not None


class _Node:
    """A place in the tree of rules."""

    __slots__ = ("action", "children")

    def __init__(self) -> None:
        self.action: Action | None = None
        self.children: dict[str, _Node] = {}

    def below(self, name: str) -> _Node | None:
        """The rules that hold for a member or element."""
        return self.children.get(name) or self.children.get(ANY)


_NOTHING: Final = object()
_LEAF: Final = _Node()


class Redaction:
    """Rules made ready for one surface's events.

    With the surface's own rule, what the gate reads survives: key, tenant and lane are hashed where nothing
    else is said, and cannot be dropped or masked; the event's time is kept.
    """

    def __init__(self, rules: Rules, names: Pseudonyms, rule: SurfaceRule | None = None) -> None:
        self.rules = rules
        self._names = names
        self._rest = Action(rules.rest)
        self._time = _time_path(rules, rule)
        self._root = _Node()
        for path, action in rules.paths().items():
            self._put(path, action)
        if rule is not None:
            self._protect(rule)

    @property
    def occurred_at(self) -> str | None:
        """Where events have their time, if they have one."""
        return None if self._time is None else ".".join(self._time)

    def _put(self, path: tuple[str, ...], action: Action) -> None:
        node = self._root
        for name in path:
            node = node.children.setdefault(name, _Node())
        node.action = action

    def _protect(self, rule: SurfaceRule) -> None:
        for field in rule.key.fields:
            self._require(rule, field.path, Action.HASH)
            if (
                field.kind in (FieldKind.DATE, FieldKind.TIMESTAMP)
                and self._at(field.path) is not Action.KEEP
            ):
                raise ConfigError(
                    f"surface {rule.name}: the key has the {field.kind.value} {field.name!r}, for which no "
                    "hash can stand; name it in keep, or leave the surface out to record no payloads"
                )
        if rule.tenant_path is not None:
            self._require(rule, rule.tenant_path, Action.HASH)
        if rule.occurred_at_path is not None:
            self._require(rule, rule.occurred_at_path, Action.KEEP)

    def _require(self, rule: SurfaceRule, path: tuple[str, ...], otherwise: Action) -> None:
        """Puts the action that lets the gate read a field, unless a rule has one that does so too."""
        action, allowed = self._at(path), (Action.KEEP, otherwise)
        if not self._is_named(path):
            self._put(path, otherwise if not is_secret_name(path[-1]) else Action.HASH)
        elif action not in allowed:
            choices = " or ".join(dict.fromkeys(choice.value for choice in reversed(allowed)))
            raise ConfigError(
                f"surface {rule.name}: the gate reads {'.'.join(path)!r}, so that {action.value} cannot be "
                f"done there; {choices} it"
            )

    def _at(self, path: tuple[str, ...]) -> Action:
        node: _Node | None = self._root
        action = self._rest
        for name in path:
            node = node.below(name) if node is not None else None
            action = node.action or action if node is not None else action
        return action

    def _is_named(self, path: tuple[str, ...]) -> bool:
        node: _Node | None = self._root
        named = False
        for name in path:
            node = node.below(name) if node is not None else None
            named = named or (node is not None and node.action is not None)
        return named

    def redact(self, event: Any) -> Any:
        """The event as it may be written down."""
        kept = self._walk(event, self._root, self._rest, ())
        return {} if kept is _NOTHING else kept

    def tenant(self, tenant: str) -> str:
        """The tenant as it may be written down."""
        return tenant if self.rules.tenant == "keep" else self._names.of_text(tenant)

    def _walk(self, value: Any, node: _Node, inherited: Action, path: tuple[str, ...]) -> Any:
        action = node.action or inherited
        if not node.children or not isinstance(value, (dict, list)):
            return self._apply(value, action, path)
        items = value.items() if isinstance(value, dict) else enumerate(value)
        kept = [
            (name, self._walk(child, node.below(str(name)) or _LEAF, action, (*path, str(name))))
            for name, child in items
        ]
        kept = [(name, child) for name, child in kept if child is not _NOTHING]
        return dict(kept) if isinstance(value, dict) else [child for _, child in kept]

    def _apply(self, value: Any, action: Action, path: tuple[str, ...]) -> Any:
        if action is Action.DROP:
            return _NOTHING
        if action is Action.MASK:
            return masked(value)
        if path == self._time and not (isinstance(value, str) and _TIME_LIKE.fullmatch(value)):
            action = Action.HASH
        if action is Action.KEEP:
            return self._kept(value, path)
        return self._names.of(value, ".".join(path))

    def _kept(self, value: Any, path: tuple[str, ...]) -> Any:
        """A value as it is, but for what is named or looks like a secret: that is hashed."""
        if path and is_secret_name(path[-1]):
            return self._names.of(value, ".".join(path))
        if isinstance(value, dict):
            return {name: self._kept(child, (*path, name)) for name, child in value.items()}
        if isinstance(value, list):
            return [self._kept(child, (*path, str(index))) for index, child in enumerate(value)]
        if isinstance(value, str) and _SECRET_TEXT.search(value):
            return self._names.of_text(value)
        return value


def _time_path(rules: Rules, rule: SurfaceRule | None) -> tuple[str, ...] | None:
    if rule is not None:
        return rule.occurred_at_path
    return None if rules.occurred_at is None else parse_path(rules.occurred_at)


def masked(value: Any) -> Any:
    """The shape of a value without what it says: letters become x, digits 0, numbers 0, flags false."""
    if isinstance(value, dict):
        return {name: masked(child) for name, child in value.items()}
    if isinstance(value, list):
        return [masked(child) for child in value]
    if isinstance(value, str):
        return "".join(map(_masked_character, value))
    if value is None or isinstance(value, bool):
        return None if value is None else False
    return 0


def _masked_character(character: str) -> str:
    if character.isalpha():
        return "x"
    return "0" if character.isdigit() else character
