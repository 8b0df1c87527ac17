"""Operators: who may look at the page and what they may do there, kept in the ledger's registry.

An operator signs in with a token that is shown once, when it is made; the ledger keeps its hash. Removing
an operator, or giving them a new token, ends every session they have.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from enum import IntEnum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.errors import ConfigError, StoreBusy
from oncegate.model.decisions import check_actor
from oncegate.store import Document, DocumentChange, Session

KIND: Final = "operator"
TOKEN_START: Final = "ogp_"
TOKEN_BYTES: Final = 32
OPERATORS_MAX: Final = 500


class Role(IntEnum):
    """What an operator may do; each role may do what the ones before it may."""

    VIEWER = 1
    OPERATOR = 2
    APPROVER = 3

    @property
    def label(self) -> str:
        """The word for people."""
        return self.name.lower()

    @property
    def means(self) -> str:
        """What it allows."""
        return _MEANS[self]


_MEANS: Final = {
    Role.VIEWER: "looks at everything but the content of events",
    Role.OPERATOR: "also reveals content, retries, skips, replays, pauses and resumes",
    Role.APPROVER: "also decides about entries that wait: approve, reject, release, discard, pairs",
}


def read_role(text: str) -> Role:
    """Reads a role's name; raises ConfigError naming those there are."""
    try:
        return Role[text.strip().upper()]
    except KeyError:
        roles = ", ".join(role.label for role in Role)
        raise ConfigError(f"{text[:40]!r} is not a role; roles are {roles}") from None


class Operator(Struct, frozen=True):
    """One person. With a tenant they see that tenant's entries and lanes and nothing else."""

    name: str
    role: str
    token_sha256: str
    tenant: str | None = None

    @property
    def rank(self) -> Role:
        """The role as a value that can be compared."""
        return read_role(self.role)

    def __repr__(self) -> str:
        return f"Operator({self.name!r}, {self.role})"


class KnownOperator(Struct, frozen=True):
    """An operator with the version of their document, which a session is bound to."""

    operator: Operator
    version: int


def hash_token(token: str) -> str:
    """What the ledger keeps. A token has 256 random bits, so a fast hash is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


def operators(session: Session) -> list[KnownOperator]:
    """All operators, by name."""
    return [_known(document) for document in session.documents(KIND)]


def find_operator(session: Session, name: str) -> KnownOperator | None:
    """Reads one operator."""
    document = session.document(KIND, name)
    return None if document is None else _known(document)


def find_by_token(session: Session, token: str) -> KnownOperator | None:
    """Finds whose token it is; every one is compared, each in constant time."""
    wanted = hash_token(token)
    found = [one for one in operators(session) if hmac.compare_digest(one.operator.token_sha256, wanted)]
    return found[0] if found else None


def _known(document: Document) -> KnownOperator:
    return KnownOperator(msgspec.json.decode(document.body, type=Operator), document.version)


class OperatorBook:
    """Adds and removes operators, with one log record each."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock

    def add(self, name: str, role: Role, tenant: str | None, actor: str) -> str:
        """Adds an operator and returns their token, which is not kept; a known name is refused."""
        check_actor(name)
        check_actor(actor)
        with self._commits.transaction() as session:
            if len(session.documents(KIND)) >= OPERATORS_MAX:
                raise ConfigError(f"there are {OPERATORS_MAX} operators already")
        token = TOKEN_START + secrets.token_urlsafe(TOKEN_BYTES)
        body = msgspec.json.encode(Operator(name, role.label, hash_token(token), tenant))
        if not self._write(name, 0, body, actor, f"operator {name} added as {role.label}"):
            raise ConfigError(f"there is an operator called {name[:60]!r} already; remove that one first")
        return token

    def rotate(self, name: str, actor: str) -> str:
        """Gives an operator a new token and returns it; the old one and every session of it are over."""
        check_actor(actor)
        known = self._found(name)
        token = TOKEN_START + secrets.token_urlsafe(TOKEN_BYTES)
        body = msgspec.json.encode(replace(known.operator, token_sha256=hash_token(token)))
        if not self._write(name, known.version, body, actor, f"operator {name} got a new token"):
            raise StoreBusy(f"operator {name!r} is being changed by others; try again")
        return token

    def remove(self, name: str, actor: str) -> None:
        """Removes an operator; raises ConfigError if there is none of that name."""
        known = self._found(name)
        if not self._write(name, known.version, None, actor, f"operator {name} removed"):
            raise StoreBusy(f"operator {name!r} is being changed by another operator; try again")

    def _found(self, name: str) -> KnownOperator:
        with self._commits.store.look() as session:
            known = find_operator(session, name)
        if known is None:
            raise ConfigError(f"no operator is called {name[:60]!r}")
        return known

    def _write(self, name: str, version: int, body: bytes | None, actor: str, note: str) -> bool:
        change = DocumentChange(KIND, name, version, body, self._clock.wall_ms(), actor, note)
        return self._commits.submit(ChangeDocument(change))
