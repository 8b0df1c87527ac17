"""A Flask API that takes an Idempotency-Key and charges a card through the gate."""

import json
import os
from pathlib import Path
from typing import Any

from flask import Flask, request

from oncegate import Gate, Once
from oncegate.wsgi import IdempotencyKey, caller_by_authorization

BOOK = Path(os.environ.get("BANK_BOOK", "bank.jsonl"))
gate = Gate(os.environ.get("ONCEGATE_URL", "sqlite:///flask.db"))
bank = gate.downstream("bank", honours_key="7d")
app = Flask(__name__)
app.wsgi_app = IdempotencyKey(  # type: ignore[method-assign]
    app.wsgi_app, gate=gate, caller=caller_by_authorization, uses_once=True
)


def charge_card(amount: int, *, idempotency_key: str) -> dict[str, Any]:
    """The payment provider: a file that remembers keys."""
    charges = [json.loads(line) for line in BOOK.read_text().splitlines()] if BOOK.exists() else []
    known = [charge for charge in charges if charge["key"] == idempotency_key]
    if not known:
        known = [{"id": f"ch_{len(charges) + 1}", "amount": amount, "key": idempotency_key}]
        with BOOK.open("a") as book:
            book.write(json.dumps(known[0]) + "\n")
    return dict(known[0])


@app.post("/charges")
def charge() -> tuple[dict[str, str], int]:
    """Charges a card once for each key of a caller."""
    once: Once = request.environ["oncegate.once"]
    charged = once.effect(bank, charge_card, int(request.get_json()["amount"]), name="charge")
    return {"charge": charged["id"]}, 201
