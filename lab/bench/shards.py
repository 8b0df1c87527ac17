"""A sharded ledger beside one database: how many new events a second, where the server is the limit.

Two cores have no room for servers that are limited by computing. So each database has a trigger that rests
5 ms for every new key, one key at a time: a database takes 200 keys a second and no more, whatever Python
could send and over however many connections. One gate with tasks admits new keys. Sizes take turns, in one
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import psycopg

from oncegate import Gate
from oncegate.clock import SystemClock
from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import PostgresServer

TASKS: Final = 256
AIM: Final = 1.6
REST: Final = """
CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_lock(1), pg_sleep(0.005), pg_advisory_unlock(1);
    RETURN NEW;
END
$$;
CREATE TRIGGER rest BEFORE INSERT ON oncegate_entry FOR EACH ROW EXECUTE FUNCTION rest();
"""


@dataclass(slots=True)
class ShardsBench:
    """What to measure."""

    rounds: int = 3
    seconds: float = 2.0
    talk: Callable[[str], None] = field(default=lambda line: None)

    def run(self) -> dict[str, Any]:
        """Events a second, by the number of databases, and their ratio."""
        rates: dict[str, list[float]] = {"one database": [], "two databases": []}
        with ExitStack() as opened:
            servers = [opened.enter_context(PostgresServer()) for _ in range(2)]
            for number in range(self.rounds):
                first, second = map(_slow, servers)
                lists = {"one database": _slow(servers[0]), "two databases": f"shards: {first} {second}"}
                for name, url in lists.items():
                    rates[name].append(asyncio.run(_rate(url, self.seconds)))
                    self.talk(f"round {number + 1}: {name}: {rates[name][-1]:,.0f} events/s")
        middle = {name: median(some) for name, some in rates.items()}
        return {
            "results": {name: round(rate) for name, rate in middle.items()},
            "ratio": round(middle["two databases"] / middle["one database"], 2),
            "aim": AIM,
        }


def _slow(server: PostgresServer) -> str:
    """A ledger whose database rests for every new key."""
    url = server.new_database()
    PostgresStore(url).migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(REST)
    return url


async def _rate(url: str, seconds: float) -> float:
    clock, done = SystemClock(), 0
    gate = Gate(url)
    gate.handler("orders", key="{id}")(_nothing)
    async with gate:
        await gate.admit("orders", {"id": "first"})
        begun = clock.ticks_ms()
        ends = begun + seconds * 1000

        async def admit(task: int) -> None:
            nonlocal done
            number = 0
            while clock.ticks_ms() < ends:
                await gate.admit("orders", {"id": f"{task}/{number}"})
                number, done = number + 1, done + 1

        await asyncio.gather(*map(admit, range(TASKS)))
        return done / (clock.ticks_ms() - begun) * 1000


async def _nothing(event: Any) -> None:
    """A handler without effects."""


def as_text(document: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = [f"{rate:>9,} events/s  {name}" for name, rate in document["results"].items()]
    return "\n".join(
        [*lines, f"{document['ratio']:>9.2f}x         two against one (aim {document['aim']:g})"]
    )
