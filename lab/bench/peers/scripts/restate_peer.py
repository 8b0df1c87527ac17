# mypy: ignore-errors
"""Restate as a subject: `idempotency-key` is the key, one `ctx.run` each for effect and row.

The driver runs the server; this process is a deployment of it, reached at the same port after a restart.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path

import aiohttp
import hypercorn.asyncio
import hypercorn.config
import restate
import stand


def free_port():
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Restate(stand.Subject):
    """Calls through the server's ingress and waits for the answer."""

    tasks = True

    def open(self):
        """Serves the handlers in a loop of their own."""
        where = json.loads(self.settings.url)
        self.ingress, self.admin, self.port = where["ingress"], where["admin"], where["port"]
        self.public = self.port
        if self.settings.effects:  # several workers, one after the other, behind one address
            self.public, self.port = where["public"], free_port()
            Path(where["port_file"]).write_text(str(self.port))
        self.bookings = stand.bookings_at(self.settings)
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        return {}

    async def _serve(self):
        service = restate.Service("bench")

        @service.handler()
        async def book(ctx: restate.Context, event: dict) -> str:
            key = stand.key_of(event)
            self.downstream.approach()
            slot = await ctx.run_typed("claim slot", lambda: self.downstream.call(key, approached=True))
            await ctx.run_typed("add row", lambda: self.bookings.add(event, slot))
            return slot

        config = hypercorn.config.Config()
        config.bind, config.loglevel, config.accesslog = [f"127.0.0.1:{self.port}"], "ERROR", None
        app = restate.app(services=[service])
        await hypercorn.asyncio.serve(app, config, shutdown_trigger=asyncio.Event().wait)

    async def open_async(self):
        """Registers the deployment, as soon as it answers."""
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        body = {"uri": f"http://127.0.0.1:{self.public}", "force": True}
        marker = Path(self.settings.folder) / "registered"
        for _ in range(100):
            if marker.exists():
                return
            async with self.http.post(f"{self.admin}/deployments", json=body) as answer:
                if answer.status < 300:
                    marker.touch()
                    return
            await asyncio.sleep(0.1)
        raise RuntimeError("the deployment could not be registered")

    async def work(self, event):
        """Invokes the handler once for the key."""
        limit = aiohttp.ClientTimeout(3 * self.settings.lease_s if self.settings.effects else 60)
        headers = {"idempotency-key": stand.key_of(event)}
        url = f"{self.ingress}/bench/book"
        async with self.http.post(url, json=event, headers=headers, timeout=limit) as answer:
            if answer.status >= 300:
                raise RuntimeError(f"{answer.status} {(await answer.text())[:80]}")
            return {"slot": await answer.json()}

    def rows(self, key):
        """Counts business rows."""
        return self.bookings.rows(key)


if __name__ == "__main__":
    stand.serve(Restate)
