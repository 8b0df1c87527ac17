"""A ledger with some records, a sealer for it, and what an edit of its database finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate
from oncegate.errors import Failed
from oncegate.journal.keys import PrivateKey
from oncegate.journal.sealer import Sealer, SealReport
from oncegate.journal.verifying import Verification, VerifyReport
from oncegate.testing.clock import ManualClock


class SealedLedger:
    """A gate on a ledger, whose log is sealed with a key of its own."""

    def __init__(self, url: str, key: PrivateKey) -> None:
        self.clock = ManualClock()
        self.gate = Gate(url, clock=self.clock)
        self.key, self.url = key, url

        @self.gate.handler("orders", key="{id}", subject="{customer}", retry_for=None, attempts_max=1)
        def order(event: dict[str, Any]) -> Any:
            if event.get("bad"):
                raise Failed("no such article for ann@example.org")
            return {"order": event["id"], "to": event.get("customer")}

    @property
    def store(self) -> Any:
        return self.gate.engine.store

    def admit(self, number: int, **event: Any) -> Any:
        given = {"id": f"o-{number}", "customer": f"c-{number % 3}", **event}
        return self.gate.admit_sync("orders", given, actor=f"agent/{number % 2}")

    def fill(self, count: int, start: int = 0) -> None:
        for number in range(start, start + count):
            with suppress(Failed):
                self.admit(number, bad=number % 7 == 3)

    def sealer(self, **options: Any) -> Sealer:
        return Sealer(self.store, self.clock, [self.key], **options)

    def seal(self, **options: Any) -> SealReport:
        return self.sealer(**options).run_once(at_once=True)

    def verify(self, **options: Any) -> VerifyReport:
        with self.store.look() as session:
            return Verification(session, trusted=[self.key.verifier], **options).run()


@pytest.fixture(scope="session")
def seal_key() -> PrivateKey:
    return PrivateKey.generate("shop.example/log")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def sealed(request: pytest.FixtureRequest, tmp_path: Path, seal_key: PrivateKey) -> Iterator[SealedLedger]:
    is_local = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/ledger.db" if is_local else request.getfixturevalue("ledger_url")
    made = SealedLedger(url, seal_key)
    yield made
    made.gate.close()
