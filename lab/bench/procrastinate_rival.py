# mypy: ignore-errors
"""The same POSTs by procrastinate with `lock=key`. Runs in a virtual environment of its own, without us.

`python procrastinate_rival.py DATABASE HOOK KEYS EVENTS AT_ONCE` prints one JSON object. Jobs of one lock
are run one at a time and in order; nothing else of what the sender promises is done here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

import aiohttp
import procrastinate

SECONDS_MAX = 60
SEEN = {"count": 0}
SESSION = {}


def make_app(database, at_once):
    """An app with the one task, and a pool that does not hold it back."""
    connector = procrastinate.PsycopgConnector(conninfo=database, min_size=4, max_size=min(at_once, 32))
    app = procrastinate.App(connector=connector)

    @app.task(name="post", queue="hooks")
    async def post(url, key, seq, emitted_at, fill):
        headers = {"x-key": key, "x-seq": str(seq), "idempotency-key": f'"{key}-{seq}"'}
        body = json.dumps({"emitted_at": emitted_at, "fill": fill}).encode()
        async with SESSION["http"].post(url, data=body, headers=headers) as answer:
            answer.raise_for_status()
        SEEN["count"] += 1

    return app, post


async def defer(post, url, keys, events):
    """Defers the whole backlog."""
    for first in range(0, events, keys):
        for key in range(min(keys, events - first)):
            name = f"order-{key}"
            job = {"url": url, "key": name, "seq": first // keys + 1, "emitted_at": time.perf_counter()}
            await post.configure(lock=name).defer_async(**job, fill="x" * 420)


async def main(database, url, keys, events, at_once):
    """Measures how fast the backlog goes out."""
    app, post = make_app(database, at_once)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await defer(post, url, keys, events)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once)) as http:
            SESSION["http"] = http
            started = time.perf_counter()
            work = app.run_worker_async(
                concurrency=at_once, wait=False, install_signal_handlers=False, listen_notify=False
            )
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(work, SECONDS_MAX)
            seconds = time.perf_counter() - started
    return {"count": SEEN["count"], "rate": SEEN["count"] / seconds}


if __name__ == "__main__":
    words = sys.argv[1:3]
    sys.stdout.write(json.dumps(asyncio.run(main(*words, *map(int, sys.argv[3:6])))) + "\n")
