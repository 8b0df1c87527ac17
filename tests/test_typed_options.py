"""A misspelt option fails in a type checker, and what is wrapped keeps its signature."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import oncegate
from oncegate.gate.facade import GateOnStore
from oncegate.gate.gate import GateEngine
from oncegate.gate.options import GateOptions, HandlerOptions, MiddlewareOptions, OnceOptions
from oncegate.integrations.middleware import Middleware
from oncegate.sender.delivery import DeliveryOptions, DeliveryService

# A line that a type checker must refuse ends with `# wrong`.
PROGRAM = '''
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_type
from uuid import UUID
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware

from oncegate import Gate, InjectedKey, Once, Sender
from oncegate.asgi import IdempotencyKey, caller_by_authorization
from oncegate.receiver import Receiver

gate = Gate("sqlite:///shop.db", actor="billing", replay_cache_max=10)
Gate("sqlite:///shop.db", replay_cash_max=10)  # wrong
bank = gate.downstream("bank", honours_key="24h")
receiver = Receiver(gate, "hooks", secrets=["whsec_"])


@gate.once(key="{order}", retention="30d", on_busy="wait", downstream=bank)
def charge(order: str, cents: int) -> str:
    return order


@gate.once(key="{order}")
async def refund(order: str) -> int:
    return 1


@gate.handler("orders", key="{id}", mode="accept", lane="{shop}", on_conflict="refuse")
def take(event: dict[str, Any], once: Once) -> bool:
    return True


@receiver.handler(key="{payload.id}", retention="30d")
async def hook(event: dict[str, Any]) -> None: ...


@dataclass
class Card:
    number: str


class Shop:
    @gate.once(key="{order}", downstream=bank)
    def pay(self, idempotency_key: InjectedKey, order: UUID, amount: Decimal, card: Card) -> Decimal:
        return amount


@gate.once(key="{order}", downstream=bank)
async def send(idempotency_key: InjectedKey, order: UUID, *, fast: bool = False) -> Card:
    return Card(str(idempotency_key))


@gate.once(key="{order}", downstream=bank)
def keyed(order: str, *, idempotency_key: str = "") -> str:
    return order


@gate.handler("cards", key="{number}")
def card_came(event: Card, once: Once) -> str:
    return event.number


assert_type(Shop().pay(UUID(int=1), Decimal(1), Card("1")), Decimal)
assert_type(keyed("1"), str)
Shop().pay("1", Decimal(1), Card("1"))  # wrong
Shop().pay(InjectedKey("1"), UUID(int=1), Decimal(1), Card("1"))  # wrong
assert_type(charge("1", 2), str)
handlers: tuple[Callable[[dict[str, Any], Once], bool], Callable[[dict[str, Any]], Any]] = (take, hook)
charge("1")  # wrong
charge(1, 2)  # wrong
take({})  # wrong
gate.once(key="{order}", retention_days=30)  # wrong
gate.once(key="{order}", on_busy="waits")  # wrong
gate.once(key="{order}", on_busy="acknowledge")  # wrong
gate.once()  # wrong
gate.handler("a", key="{id}", leese="30s")  # wrong
gate.handler("b", key="{id}", mode="later")  # wrong
gate.handler("c", key="{id}", on_conflict="ask")  # wrong
receiver.handler(retenton="30d")  # wrong
receiver.handler(on_busy="waits")  # wrong
Sender(gate=gate).delivering(actor="sender", stop_seconds=1)
Sender(gate=gate).delivering(stop=1)  # wrong


class FastApi(Starlette):
    """FastAPI inherits add_middleware in the same way."""


async def work() -> None:
    async with Gate() as opened:
        assert_type(opened, Gate)
        assert_type(await refund("1"), int)
        assert_type(await send(UUID(int=1), fast=True), Card)
        await send(UUID(int=1), slow=True)  # wrong


app = FastApi(middleware=[Middleware(IdempotencyKey, gate=gate, caller=caller_by_authorization)])
app.add_middleware(IdempotencyKey, gate=gate, caller=caller_by_authorization)
app.add_middleware(IdempotencyKey, gate=gate, caller=lambda scope: "a", uses_once=True, lease="30s")
app.add_middleware(IdempotencyKey, gate=gate, caller=caller_by_authorization, lese="30s")  # wrong
app.add_middleware(IdempotencyKey, gate=gate)  # wrong
'''


@pytest.mark.slow
def test_mypy_refuses_misspelt_options_and_nothing_else(tmp_path: Path) -> None:
    """Right calls, the documented middleware among them, pass `mypy --strict`; each wrong one fails."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, f"--cache-dir={tmp_path / 'cache'}", program.name],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(Path(oncegate.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,  # wrong lines are expected
    )
    lines = PROGRAM.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    refused = {int(number) for number in re.findall(r"(?m)^program\.py:(\d+): error", done.stdout)}
    assert refused == wrong, done.stdout + done.stderr


def test_options_that_are_passed_on_are_those_that_are_taken() -> None:
    """A new option of `handler`, of a gate or of a delivery has its place in the typed options too."""
    taken = _keywords(GateOnStore.handler) - {"key"}
    assert HandlerOptions.__annotations__.keys() == taken
    assert OnceOptions.__annotations__.keys() == taken - {"downstream"}
    decided = {"returns", "retry_for", "caller_retries"} | _keywords(Middleware.__init__)
    assert MiddlewareOptions.__annotations__.keys() == taken - decided
    assert GateOptions.__annotations__.keys() == _keywords(GateEngine.__init__) - {"clock", "crashpoints"}
    assert DeliveryOptions.__annotations__.keys() == _keywords(DeliveryService.__init__)


def _keywords(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
