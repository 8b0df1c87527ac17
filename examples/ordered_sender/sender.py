"""The sending half: emits the life of some orders, and delivers them in order for each key."""

import asyncio

from oncegate import Sender

STATUSES = ("created", "paid", "shipped")
KEYS = ("order-17", "order-18", "order-19")


async def main() -> None:
    """Emits everything first, then delivers until nothing waits."""
    with Sender("sqlite:///sender.db") as sender:
        for status in STATUSES:
            for key in KEYS:
                await sender.emit("orders", key=key, type="order.updated", payload={"status": status})
        async with sender.delivering() as delivery:
            while delivery.engine.counts()[0] < len(STATUSES) * len(KEYS):
                await asyncio.sleep(0.02)


asyncio.run(main())
