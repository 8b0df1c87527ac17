"""How to test handlers: nothing to prepare, `TestCase` and `TransactionTestCase` as usual."""

from django.db import transaction
from django.test import TestCase, TransactionTestCase
from shop.models import Booking, Payment

from oncegate.contrib.django import gate

SLOT = {"container": "MSCU1234567", "slot": "07:00"}
ORDER = {"order": "A-1", "cents": 995}


class Bookings(TestCase):
    """Each test runs in a transaction that is rolled back: the ledger's entries go with the rows."""

    def test_a_repeat_is_replayed(self) -> None:
        """Twice the same event: one row."""
        first = self.client.post("/bookings", SLOT, content_type="application/json")
        again = self.client.post("/bookings", SLOT, content_type="application/json")
        self.assertEqual([first.status_code, again.status_code], [201, 200])
        self.assertEqual(Booking.objects.count(), 1)

    def test_the_next_test_knows_nothing_of_it(self) -> None:
        """The same key is new again."""
        self.assertFalse(gate.admit_sync("bookings", SLOT).replay)

    def test_a_rollback_takes_the_outcome_along(self) -> None:
        """Row and outcome are one transaction."""
        with self.assertRaises(RuntimeError), transaction.atomic():
            gate.admit_sync("bookings", SLOT)
            raise RuntimeError("undo")
        self.assertFalse(Booking.objects.exists())
        self.assertFalse(gate.admit_sync("bookings", SLOT).replay)

    def test_a_handler_with_once(self) -> None:
        """`once.commit()` joins the handler's own transaction.atomic()."""
        self.assertFalse(gate.admit_sync("orders", ORDER).replay)
        self.assertTrue(gate.admit_sync("orders", ORDER).replay)
        self.assertEqual(Payment.objects.count(), 1)

    def test_a_keyed_request(self) -> None:
        """The second request with a key gets the first one's response."""
        headers = {"Idempotency-Key": '"k-1"', "X-Shop-Customer": "ann"}
        sent = [
            self.client.post("/payments", ORDER, content_type="application/json", headers=headers)
            for _ in range(2)
        ]
        self.assertEqual([one.status_code for one in sent], [201, 201])
        self.assertEqual(sent[0].json(), sent[1].json())
        self.assertEqual(sent[1].headers["Idempotency-Replayed"], "true")
        self.assertEqual(Payment.objects.count(), 1)


class CommittedBookings(TransactionTestCase):
    """Real commits: the ledger has connections of its own, and is emptied after each test."""

    def test_a_repeat_is_replayed(self) -> None:
        """Twice the same event: one row."""
        self.assertFalse(gate.admit_sync("bookings", SLOT).replay)
        self.assertTrue(gate.admit_sync("bookings", SLOT).replay)
        self.assertEqual(Booking.objects.count(), 1)

    def test_the_next_test_knows_nothing_of_it(self) -> None:
        """The same key is new again."""
        self.assertFalse(gate.admit_sync("bookings", SLOT).replay)
        self.assertFalse(gate.admit_sync("orders", ORDER).replay)
        self.assertTrue(gate.admit_sync("orders", ORDER).replay)
