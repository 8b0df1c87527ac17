"""More tests of examples/django_app, copied into its `shop` and run by `manage.py test`."""

import asyncio
import threading
from decimal import Decimal
from typing import Any

from django.db import connection, connections, transaction
from django.test import TestCase, TransactionTestCase
from shop.models import Booking, Payment

from oncegate import Verdict
from oncegate.contrib.django import DjangoGate, gate
from oncegate.errors import UsageError
from oncegate.gate.flows.settlement import NotCommitted
from oncegate.signatures.keys import read_signing_key
from oncegate.signatures.signing import sign

SLOT = {"container": "MSCU1234567", "slot": "07:00"}
ORDER = {"order": "A-1", "cents": 995}
audit = DjangoGate("audit")


@audit.handler("notes", key="{id}", same_database=True)
def note(event: dict[str, Any]) -> None:
    Payment.objects.using("audit").create(order=event["id"], cents=0)


@gate.once(key="{order}", same_database=True)
def refund_once(order: str, amount: Decimal) -> Decimal:
    Payment.objects.create(order=order, cents=-int(amount * 100))
    return amount


@gate.handler("broken", key="{id}", same_database=True, retry_base="1ms", retry_cap="1ms")
def broken(event: dict[str, Any]) -> None:
    Payment.objects.create(order=event["id"], cents=1)
    if Booking.objects.count() == 0:
        raise ValueError("no booking yet")


@gate.handler("open", key="{id}")
def leaves_open(event: dict[str, Any], once: Any) -> None:
    once.commit(outcome=1)


def entries(alias: str = "default") -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM oncegate_entry")
        return int(cursor.fetchone()[0])


class InATest(TestCase):
    databases = {"default", "audit"}

    @classmethod
    def setUpTestData(cls) -> None:
        assert gate.admit_sync("bookings", SLOT).verdict is Verdict.RUN

    def test_data_of_the_class_is_known(self) -> None:
        assert gate.admit_sync("bookings", SLOT).replay

    def test_data_of_the_class_is_known_in_each_test(self) -> None:
        assert gate.admit_sync("bookings", SLOT).replay
        assert entries() == 1

    def test_a_handler_that_fails_leaves_no_row_and_runs_again(self) -> None:
        Booking.objects.all().delete()
        with self.assertRaises(ValueError):
            gate.admit_sync("broken", {"id": "B-1"})
        assert Payment.objects.count() == 0
        Booking.objects.create(container="C", slot="S")
        assert gate.admit_sync("broken", {"id": "B-1"}).verdict is Verdict.RUN
        assert Payment.objects.count() == 1

    def test_values_of_a_function_come_back_as_they_were(self) -> None:
        assert [refund_once("A-9", Decimal("1.50")) for _ in range(2)] == [Decimal("1.50")] * 2
        assert Payment.objects.count() == 1

    def test_a_signed_webhook_is_applied_once(self) -> None:
        from shop.oncegate_handlers import SECRET

        body = b'{"type":"refund","order":"A-1","cents":500}'
        now = gate.engine.clock.wall_ms() // 1000
        signed = dict(sign([read_signing_key(SECRET)], "msg_1", now, body))
        answers = [
            self.client.generic("POST", "/hooks/refunds", body, "application/json", headers=signed)
            for _ in range(2)
        ]
        assert [one.status_code for one in answers] == [200, 200], answers[0].content
        assert Payment.objects.get().cents == -500

    def test_each_alias_has_a_ledger_of_its_own(self) -> None:
        before = entries()
        assert audit.admit_sync("notes", {"id": "N-1"}).verdict is Verdict.RUN
        assert audit.admit_sync("notes", {"id": "N-1"}).replay
        assert (entries("audit"), entries()) == (1, before)


class Committed(TransactionTestCase):
    databases = {"default", "audit"}

    def test_a_rollback_takes_the_outcome_along(self) -> None:
        with self.assertRaises(RuntimeError), transaction.atomic():
            gate.admit_sync("bookings", SLOT)
            raise RuntimeError("undo")
        assert (Booking.objects.count(), entries()) == (0, 0)
        assert gate.admit_sync("bookings", SLOT).verdict is Verdict.RUN

    def test_the_callers_commit_is_the_outcomes(self) -> None:
        with transaction.atomic():
            gate.admit_sync("bookings", SLOT)
        assert gate.admit_sync("bookings", SLOT).replay

    def test_a_function_joins_the_callers_transaction(self) -> None:
        with self.assertRaises(RuntimeError), transaction.atomic():
            refund_once("A-9", Decimal("1.50"))
            raise RuntimeError("undo")
        assert (Payment.objects.count(), entries()) == (0, 0)

    def test_tasks_run_plain_handlers_in_a_thread(self) -> None:
        async def twice() -> list[Verdict]:
            return [(await gate.admit("bookings", SLOT)).verdict for _ in range(2)]

        assert asyncio.run(twice()) == [Verdict.RUN, Verdict.REPLAY]
        assert Booking.objects.count() == 1

    def test_threads_that_bring_one_event_write_one_row(self) -> None:
        seen: list[Verdict] = []

        def bring() -> None:
            seen.append(gate.admit_sync("orders", ORDER).verdict)
            connection.close()

        threads = [threading.Thread(target=bring) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert Payment.objects.count() == 1
        assert len(seen) == 6
        assert seen.count(Verdict.RUN) == 1

    def test_a_commit_that_the_caller_has_not_made_is_no_commit(self) -> None:
        expected = UsageError if connection.vendor == "sqlite" else NotCommitted
        with self.assertRaises(expected), transaction.atomic():
            gate.admit_sync("open", {"id": "O-1"})

    def test_sqlite_says_why_it_would_wait_for_itself(self) -> None:
        if connection.vendor == "sqlite":
            with self.assertRaisesRegex(UsageError, "same_database=True"), transaction.atomic():
                gate.admit_sync("orders", ORDER)
