"""Where a visitor goes on after signing in: the page they asked for, and the form they had filled in.

A form that comes without a living session changes nothing. It is shown again after the sign-in, and the
visitor sends it once more. Must never lead to another site, and never send a form by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from msgspec import Struct

from oncegate.dashboard.auth import FIELD, Visitor
from oncegate.dashboard.request_context import PageResponse

NEXT: Final = "next"
LENGTH_MAX: Final = 2_000
KEPT_MAX: Final = 48 * 1024  # of the 64 KiB that a form may have, with what the sign-in adds
FIELDS_MAX: Final = 200
_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*", re.ASCII)
_NOT_AFTER_SIGN_IN: Final = ("/login", "/logout", "/static")


class SavedForm(Struct, frozen=True):
    """A form that was filled in: where it goes, and its fields."""

    path: str
    fields: tuple[tuple[str, str], ...]

    @property
    def packed(self) -> str:
        """The fields as one value of another form."""
        return urlencode(self.fields)


def keep(path: str, form: Mapping[str, str]) -> SavedForm | None:
    """What is kept of a form; without its token, which belongs to the session that is over."""
    kept = SavedForm(path, tuple((name, value) for name, value in form.items() if name != FIELD))
    return kept if len(kept.packed) <= KEPT_MAX else None


def unpack(path: str, packed: str) -> SavedForm | None:
    """Reads a kept form back from the form of the sign-in."""
    try:
        fields = parse_qsl(packed, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        return None
    return keep(path, dict(fields))


def own_path(text: str) -> str | None:
    """A path of this page that a visitor may be led to; None for anything that could lead elsewhere."""
    if len(text) > LENGTH_MAX or _PATH.fullmatch(text) is None or text.startswith(_NOT_AFTER_SIGN_IN):
        return None
    return text


def sign_in_path(asked: str) -> str:
    """The address of the sign-in that leads to a path afterwards."""
    wanted = own_path(asked)
    return "/login" if wanted in (None, "/") else f"/login?{NEXT}={quote(str(wanted), safe='/')}"


def came_from(referrer: str, root: str) -> str:
    """The path below the mount that a form was sent from, if its page tells and is ours."""
    try:
        parts = urlsplit(referrer[:LENGTH_MAX])
    except ValueError:
        return ""
    path = parts.path.removeprefix(root) + (f"?{parts.query}" if parts.query else "")
    return own_path(path) or ""


def sign_in_form(
    after: str, kept: SavedForm | None = None, refusal: str = "", status: int = 200
) -> PageResponse:
    """The form of the sign-in, with where to go afterwards and what had been filled in."""
    values = {"title": "Sign in", "after": own_path(after) or "", "kept": kept, "refusal": refusal}
    return PageResponse("login.html", values, status)


def again(kept: SavedForm, back: str, why: str, status: int = 200) -> PageResponse:
    """A form that was filled in before, to be looked at and sent."""
    values = {"title": "Send it again?", "kept": kept, "back": back or "/", "why": why}
    return PageResponse("again.html", values, status)


def after_sign_in(visitor: Visitor, after: str, kept: SavedForm | None) -> PageResponse:
    """Goes on with the form that was filled in, with the page that was asked for, or with the first one."""
    if kept is not None:
        return again(kept, own_path(after) or "", "Your session was over.")
    return PageResponse(go_to=own_path(after) or ("/waiting" if visitor.tenant is not None else "/"))
