"""The rules: id, title, why it matters, how to mend it, a bad and a good example.

`--explain` prints an entry. SARIF and docs/audit.md are made from the same entries.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class AuditRule(Struct, frozen=True):
    """One rule as people read it."""

    id: str
    title: str
    why: str
    fix: str
    bad: str
    good: str
    limits: str


RULES: Final[dict[str, AuditRule]] = {
    rule.id: rule
    for rule in (
        AuditRule(
            "OG001",
            "outside call before any reservation",
            "a second delivery of the same message calls it again",
            'reserve a key first: @gate.handler("name", key="{business_id}"), then once.effect(...)',
            "def on_order(ch, method, props, body):\n    order = json.loads(body)\n"
            "    requests.post(BANK, json=order)",
            '@gate.handler("orders", key="{order_id}")\ndef on_order(event, once):\n'
            "    once.effect(bank, lambda: charge(event))",
            "Calls that read (GET), calls by PUT or DELETE, and calls that carry a stable idempotency key are"
            " no findings. Where a key is reserved on some paths only, the call is listed as not judged.",
        ),
        AuditRule(
            "OG002",
            "key made of transport parts",
            "the transport gives a repeat another id, so the repeat looks new",
            "make the key of business fields that the sender sets, such as the order's id",
            'r.set(record["messageId"], 1, nx=True)',
            'r.set(body["order_id"], 1, nx=True)',
            "Transport parts are message ids, receipt handles, offsets, delivery tags, retry counts, request ids,"
            " times of receipt and fresh random values.",
        ),
        AuditRule(
            "OG003",
            "repeats are recognised in a time window only",
            "a repeat that comes after the window runs again",
            "keep keys longer than any redelivery: days for a queue, and a redrive may come after weeks",
            "r.set(order_id, 1, nx=True, ex=300)",
            "r.set(order_id, 1, nx=True, ex=90 * 86400)",
            "Windows of seven days and more are no findings, and locks are not windows.",
        ),
        AuditRule(
            "OG004",
            "key and business write are not one transaction",
            "a crash between the two loses the write, or makes it twice",
            "insert the key and write the business rows in the same transaction",
            "with db.begin():\n    update_stock(db)\nwith db.begin():\n    insert_processed(db)",
            "with db.begin():\n    insert_processed(db)\n    update_stock(db)",
            "An outside call between the two cannot be part of a transaction, so such handlers are no findings.",
        ),
        AuditRule(
            "OG005",
            "check, then act, instead of one atomic reservation",
            "two deliveries at once both pass the check and both act",
            "insert the key first, atomically (unique index, SET NX), and act only if the insert won",
            "if not seen(key):\n    charge(order)\n    remember(key)",
            "if not insert_once(key):\n    return\ncharge(order)",
            "A row lock (FOR UPDATE) or a lock around check and act is no finding.",
        ),
        AuditRule(
            "OG006",
            "repeat is dropped silently",
            "a repeat cannot be told from an event that was lost",
            "write a log line, count a metric or record the repeat before you return",
            "if not reserve(key):\n    return",
            'if not reserve(key):\n    log.info("repeat of %s", key)\n    return',
            "An answer that says it is a repeat, or returns the stored result, is no finding.",
        ),
        AuditRule(
            "OG007",
            "acknowledged before the work is durable",
            "a crash after the acknowledgement loses the event",
            "acknowledge, delete or commit after the work is stored; switch automatic acknowledgement off",
            'Consumer({"enable.auto.commit": True})',
            'Consumer({"enable.auto.commit": False})',
            "Celery's default is a setting of the whole application and is no finding by itself;"
            " acks_late=False is.",
        ),
        AuditRule(
            "OG008",
            "a failure after an effect is swallowed, or never acknowledged",
            "the event counts as done although it is not, or it stays unacknowledged for ever",
            "let the error pass, give the message back, or record the failure; acknowledge on every path",
            "try:\n    charge(order)\nexcept Exception:\n    log.exception('failed')\nch.basic_ack(tag)",
            "try:\n    charge(order)\nexcept Exception:\n    ch.basic_nack(tag)\n    raise",
            "Queues that redeliver what was not deleted (SQS, Pub/Sub, NATS) may skip the acknowledgement"
            " after an error.",
        ),
        AuditRule(
            "OG009",
            "idempotency key not passed on",
            "the API would recognise a repeat by its key, but gets none",
            'pass a key made of business fields: idempotency_key=f"order-{order_id}"',
            "stripe.PaymentIntent.create(amount=amount, currency='eur')",
            "stripe.PaymentIntent.create(amount=amount, currency='eur', idempotency_key=key)",
            "Judged for APIs known to take a key: Stripe, Square, Adyen, PayPal, Mollie, Resend, FIFO queues"
            " and AWS calls with a client token.",
        ),
        AuditRule(
            "OG010",
            "retry around a call that is not idempotent",
            "a lost answer makes the client send the same request again",
            "pass an idempotency key, or retry only errors that happen before the request is sent",
            "@retry(stop=stop_after_attempt(3))\ndef charge(order):\n    requests.post(BANK, json=order)",
            "@retry(stop=stop_after_attempt(3))\ndef charge(order, key):\n"
            '    requests.post(BANK, json=order, headers={"Idempotency-Key": key})',
            "Retries of GET, of connection errors only, and of calls with a stable key are no findings.",
        ),
        AuditRule(
            "OG011",
            "naive or local time",
            "the same text means another moment on another machine, or an hour that exists twice",
            "read times with an offset and refuse those without; use datetime.now(timezone.utc)",
            'when = datetime.fromisoformat(event["at"])',
            'when = datetime.fromisoformat(event["at"])\nif when.tzinfo is None:\n    raise ValueError("no offset")',
            "Only times in functions that a handler reaches are judged.",
        ),
        AuditRule(
            "OG012",
            "new idempotency key for each attempt",
            "the API cannot recognise a repeat: every attempt carries another key",
            "derive the key from business fields, or store it before the first attempt",
            "stripe.Refund.create(charge=c, idempotency_key=str(uuid4()))",
            'stripe.Refund.create(charge=c, idempotency_key=f"refund-{refund_id}")',
            "A random key that is stored before the call is no finding.",
        ),
        AuditRule(
            "OG013",
            "effect inside a database transaction that may roll back",
            "the transaction rolls back, and the effect stays",
            "call after the commit (on_commit, outbox), or reserve, commit, call, record",
            "with transaction.atomic():\n    order.save()\n    requests.post(BANK, json=data)",
            "with transaction.atomic():\n    order.save()\n    transaction.on_commit(notify)",
            "Judged for explicit transaction blocks, and for sessions that are rolled back after the call fails.",
        ),
        AuditRule(
            "OG014",
            "misuse of oncegate",
            "the gate protects only what passes through it",
            "call outside systems inside once.effect(...), await it, and let ClaimLost pass",
            '@gate.handler("orders", key="{order_id}")\ndef on_order(event, once):\n    requests.post(BANK, json=event)',
            '@gate.handler("orders", key="{order_id}")\ndef on_order(event, once):\n'
            "    once.effect(bank, requests.post, BANK, json=event)",
            "A handler that takes only the event runs at most once and may call directly.",
        ),
        AuditRule(
            "OG900",
            "suppression without effect or without reason",
            "a suppression that hides nothing hides the next fault",
            "remove the comment, or write the reason after the brackets",
            "# oncegate: ignore[OG001]",
            "# oncegate: ignore[OG001] the bank recognises order ids",
            "Reported for comments in files that were audited.",
        ),
    )
}
