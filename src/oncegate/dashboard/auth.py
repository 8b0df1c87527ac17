"""The doors: who is asking, may they, and does the request come from our own page.

A session is a signed value in a cookie, bound to the operator's document: opening one writes nothing, and
it survives a restart. Ending one is written to the ledger (`sessions.py`), which every request reads. A
change must come by POST, with the session's form token, from this very page as far as the browser tells
(Origin, Sec-Fetch-Site). Must never let one of these stand in for another.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Mapping
from enum import Enum
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from oncegate.dashboard.operators import KnownOperator, Role, find_operator
from oncegate.dashboard.sessions import endings_of
from oncegate.store import Session

COOKIE: Final = "oncegate_page"
FIELD: Final = "form_token"
SESSION_MS: Final = 12 * 3600 * 1000  # one shift
_TEXT_MAX: Final = 2_000
_PURPOSE: Final = b"oncegate operations page session v2"
_ID_BYTES: Final = 12


class Access(Enum):
    """Who may use a page."""

    READ_ONLY = "read-only"  # whoever reaches it may look, nobody may act: for pages inside another app
    LOGIN = "login"  # everybody signs in


class Visitor(Struct, frozen=True):
    """The person who asks. `form_token` is empty for those who may do nothing but look.

    `session_id` and `until_ms` name their session, so that it can be ended.
    """

    name: str
    role: Role
    tenant: str | None = None
    form_token: str = ""
    session_id: str = ""
    until_ms: int = 0

    def may(self, role: Role) -> bool:
        """Whether they have this role, or more; without a form token no visitor may act."""
        return self.role >= role and (role is Role.VIEWER or bool(self.form_token))


ANYBODY: Final = Visitor("", Role.VIEWER)


def session_key(session: Session) -> bytes:
    """The ledger's own key for sessions, derived so that it serves nothing else."""
    return hmac.digest(session.feed_secret(), _PURPOSE, "sha256")


def issue(key: bytes, known: KnownOperator, now_ms: int, generation: int = 0) -> str:
    """Makes the value of a session's cookie; the generation is the one of the operator's `Endings`."""
    bounds = f"{known.version}.{generation}.{now_ms + SESSION_MS}"
    said = f"{bounds}.{secrets.token_hex(_ID_BYTES)}.{_packed(known.operator.name)}"
    return f"{said}.{_signature(key, 'session', said)}"


def admit(session: Session, cookie: str, now_ms: int) -> Visitor | None:
    """Finds the operator behind a cookie; None if it is forged, over, ended, or they were removed since."""
    key = session_key(session)
    if not is_signed(key, cookie):
        return None
    said = cookie.rpartition(".")[0]
    version, generation, until, session_id, packed = said.split(".")
    known = find_operator(session, _unpacked(packed))
    if known is None or known.version != int(version) or now_ms >= int(until):
        return None
    operator = known.operator
    if endings_of(session, operator.name).has_ended(int(generation), session_id):
        return None
    token = _signature(key, "form", said)
    return Visitor(operator.name, operator.rank, operator.tenant, token, session_id, int(until))


def is_signed(key: bytes, cookie: str) -> bool:
    """Whether a cookie was made with this key; whether its session is over, the ledger says."""
    said, _, signature = cookie.rpartition(".")
    if len(cookie) > _TEXT_MAX:
        return False
    return hmac.compare_digest(_signature(key, "session", said).encode(), signature.encode())


def _signature(key: bytes, purpose: str, said: str) -> str:
    return hmac.new(key, f"{purpose}:{said}".encode(), sha256).hexdigest()


def _packed(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _unpacked(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def is_own_page(headers: Mapping[str, str], scheme: str) -> bool:
    """Whether a request comes from this page, as far as the browser tells.

    Browsers send Origin with every POST and most send Sec-Fetch-Site; a program that sends neither has no
    cookies of another person to misuse.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    return _authority(origin, "") == _authority(f"{scheme}://{headers.get('host', '')}", scheme)


def _authority(url: str, scheme: str) -> tuple[str | None, int | None]:
    """Host and port; behind a proxy that ends TLS the scheme may differ, the name may not."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return (None, -1 if scheme else -2)
    return (parts.hostname, None if port in (80, 443) else port)


def is_form_token(visitor: Visitor, given: str) -> bool:
    """Whether a form carries its session's token."""
    return bool(visitor.form_token) and hmac.compare_digest(visitor.form_token.encode(), given.encode())
