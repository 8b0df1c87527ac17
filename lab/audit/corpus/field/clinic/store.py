"""Keys of the clinic."""

from __future__ import annotations

import asyncpg
import redis.asyncio as aioredis


class Inbox:
    """Remembers which messages were taken."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self.pool = pool

    async def claim(self, key: str) -> bool:
        status = await self.pool.execute("INSERT INTO inbox (key) VALUES ($1) ON CONFLICT DO NOTHING", key)
        return status == "INSERT 0 1"

    async def has(self, key: str) -> bool:
        return await self.pool.fetchval("SELECT 1 FROM inbox WHERE key = $1", key) is not None

    async def put(self, key: str) -> None:
        await self.pool.execute("INSERT INTO inbox (key) VALUES ($1)", key)


class ShortMemory:
    """Keys in Redis."""

    def __init__(self, url: str) -> None:
        self.redis: aioredis.Redis = aioredis.from_url(url)

    async def first_time(self, key: str) -> bool:
        return bool(await self.redis.set(f"clinic:{key}", "1", nx=True, ex=600))  # bad: OG003

    async def first_time_long(self, key: str) -> bool:
        return bool(await self.redis.set(f"clinic:{key}", "1", nx=True, ex=60 * 60 * 24 * 30))
