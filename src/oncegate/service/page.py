"""The operations page below /ui of the service: made at the first request for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from oncegate.gate.facade import GateOnStore

PATH: Final = "/ui"
_AWAY: Final = [(b"location", f"{PATH}/".encode()), (b"content-length", b"0")]

Message = MutableMapping[str, Any]

_BELOW: Final = f"{PATH}/"


class PageMount:
    """Gives requests below its path to the page, where every visitor signs in."""

    def __init__(self, gate: GateOnStore) -> None:
        self._gate = gate
        self._application: Any = None

    def has(self, path: str) -> bool:
        """Whether a path belongs to the page."""
        return path.startswith(_BELOW) or path == PATH

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Serves one request."""
        if scope["path"] == PATH:
            await send({"type": "http.response.start", "status": 307, "headers": _AWAY})
            await send({"type": "http.response.body", "body": b""})
            return
        if self._application is None:
            from oncegate.dashboard.application import page_of
            from oncegate.dashboard.auth import Access

            self._application = page_of(self._gate, Access.LOGIN)
        await self._application({**scope, "root_path": PATH}, receive, send)
