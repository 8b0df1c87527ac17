"""Pages that say one thing: what went wrong, and what to do about it."""

from __future__ import annotations

from typing import Final

from oncegate.dashboard.request_context import NotAllowed, NotHere, PageResponse
from oncegate.errors import OncegateError, StoreError

HERE_ONLY: Final = (
    "this browser has forgotten the session, but the ledger cannot be written: a copy of the cookie works"
    " until the session's time is over, or until: oncegate operators sign-out NAME"
)
REFUSALS: Final = {
    400: "the form cannot be read",
    404: "there is no such page",
    405: "this is not done by following a link",
    415: "no file is taken here",
}
OVER: Final = "your session is over, and nothing was changed; sign in, and the form is shown again"
FOREIGN: Final = "the request does not come from this page; nothing was changed"
STALE: Final = (
    "the form does not belong to your session, or you may only look here; nothing was changed."
    " Load the page again"
)


def message(title: str, message: str, status: int) -> PageResponse:
    """A page with one sentence."""
    return PageResponse("message.html", {"title": title, "message": message}, status)


def missing() -> PageResponse:
    """There is no such page."""
    return message("Not here", "there is no such page", 404)


def apology(error: OncegateError) -> PageResponse:
    """An error of ours as a page: what it says was written for people and holds no secret."""
    status = _STATUSES.get(type(error))
    if status is None:
        status = 503 if isinstance(error, StoreError) else 400
    return message("Not done" if status != 404 else "Not here", str(error), status)


_STATUSES: Final[dict[type[OncegateError], int]] = {NotHere: 404, NotAllowed: 403}
