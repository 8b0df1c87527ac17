"""The receiving half: applies each event once, and refuses one that comes before its predecessor."""

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response

from oncegate import Gate, Once
from oncegate.receiver import Receiver

gate = Gate("sqlite:///receiver.db")
orders = Receiver(gate, "orders", secrets=[os.environ["WEBHOOK_SECRET"]], sender="shop")
app = FastAPI()


@orders.handler()
def apply(event: dict[str, Any], once: Once) -> None:
    """Appends one line for each event."""
    with Path("applied.txt").open("a") as file:
        print(event["key"], event["seq"], event["payload"]["data"]["status"], file=file)


@app.post("/hooks")
async def receive(request: Request) -> Response:
    """Verifies, deduplicates and orders."""
    answer = await orders.receive(request.headers.items(), await request.body())
    return Response(answer.body, answer.status, dict(answer.headers))
