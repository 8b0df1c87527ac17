"""Mutants that no test could notice, each with the reason: counted apart, neither noticed nor survived.

By (file, line's text, change); `(2)` is the second equal line of a file. Must never hold a mutant that only
lacks a test.
"""

from __future__ import annotations

_SAME_UNIT = "the row was read in the same transaction, which began as the only writer"
_ROW_BY_ROW = "the batch is taken row by row, which is slower and nothing else"
_ANY_ROW = "the statement for keys of any kind inserts the same row, which is slower and nothing else"
_NO_ROWS = "without rows the statement does nothing"
_BELOW_FLOOR = "what is at or below the floor was removed in the transaction that raised it"
_ONE_FENCE = "a fence of a lane is given out once, for one event"
_NO_HOLDER = "a lane that is not leased has no holder"
_ONE_STATEMENT = "one statement has a transaction of its own then, which is slower and nothing else"
_NULL_SEQ = "no seq equals NULL, so nothing is deleted"
_OWN_ROW = "the row was inserted in the same transaction, and no other has seen it"
_WRITTEN_AGAIN = "the same steps are written once more with the next write"
_IN_ORDER = "what is replayed is taken from the list when it ends, so nothing at or before it is left there"

_SQLITE_CLAIMS: dict[tuple[str, str], str] = {
    ('" WHERE id = ? AND fence = ?"', "without AND fence = ?"): _SAME_UNIT,
    ('" WHERE id = ? AND fence = ?"', "without AND fence = ? (2)"): _SAME_UNIT,
    (
        'self._connection.execute("RELEASE settle")',
        "left out",
    ): "the commit releases every savepoint, and the next one of that name stands above it",
    (
        "if item.steps or item.clear_steps:",
        "if True",
    ): "whether there are steps to write or to remove is looked at once more",
    (
        "if item.steps or item.clear_steps:",
        "if True (2)",
    ): "whether there are steps to write or to remove is looked at once more",
    ("if self._settle_all(settlements):", "if False"): _ROW_BY_ROW,
    ("if len(settlements) == 1:", "if False"): "one alone is tried as a batch, and then by itself",
    ("if item.writes:", "if True"): _NO_ROWS,
    ("if sweep is not None:", "if False"): _ROW_BY_ROW,
    ("if sweep is not None:", "if False (2)"): _ROW_BY_ROW,
    ("if item.steps:", "if True"): _NO_ROWS,
    ("if outcomes:", "if True"): _NO_ROWS,
    (
        "if len(batches) == 1:",
        "if False",
    ): "the writes of one go the way of those of many, in the same order",
    (
        "if len(wanted) == 1:",
        "if False",
    ): "one alone is then a batch of one, which is slower and nothing else",
}
_SQLITE_INSERTING: dict[tuple[str, str], str] = {
    (
        "if cursor.rowcount == len(wanted):",
        "if False",
    ): "which rows were inserted is looked up then, and all were",
    (
        "if cursor.rowcount == 0:",
        "if False",
    ): "which rows were inserted is looked up then, and there are none",
    (
        "if is_listed_at(number - 1, number):",
        "if True",
    ): "the list is made with every key then, which is slower and nothing else",
    ("if marks:", "if True"): _NO_ROWS,
    ("if item.content is not None:", "if True"): "whether there is a mark to keep is looked at once more",
    ("if item.quarantine is None and item.hold is None:", "if False"): _ANY_ROW,
    ("if all(item.quarantine is None and item.hold is None for item in wanted):", "if False"): _ANY_ROW,
}
_SQLITE_SWEEPS: dict[tuple[str, str], str] = {
    ("if any(places):", "if True"): _NO_ROWS,
    (
        "if not IS_POSSIBLE or len(settlements) < SWEPT_MIN:",
        "if False",
    ): "two or three are swept too, which is no quicker and nothing else",
    ("if not IS_POSSIBLE or len(settlements) < SWEPT_MIN:", "if True"): _ROW_BY_ROW,
}
_SQLITE_LANES: dict[tuple[str, str], str] = {
    ("if replay is not None:", "if True"): _NULL_SEQ,
    (
        "if held[4] is not None:",
        "if True",
    ): "only what comes before the head is ever replayed, not the head",
    ("if ended:", "if True"): "a waiting lane with a replay before it has begun that already",
    (
        '" attempt = 0, due_at = ?2 WHERE id = ?1 AND state = 2 AND replay IS NULL"',
        "without AND state = 2",
    ): "the attempt has just ended, so the lane waits",
    ('" WHERE lane = ?1 AND seq = ?2 AND fence = ?3"', "without AND seq = ?2"): _ONE_FENCE,
    (
        '" UNION ALL SELECT 1 FROM oncegate_dead_letter WHERE lane = ?1 AND seq = ?2 AND fence = ?3"',
        "without AND seq = ?2",
    ): _ONE_FENCE,
    (
        '"SELECT max(seq) FROM oncegate_dead_letter AS dead WHERE lane = ?1 AND seq < ?2 AND NOT EXISTS"',
        "without AND seq < ?2",
    ): "a dead letter lies before the head, or is the head of a lane that is blocked and not leased",
    (
        (
            '" FROM oncegate_lane INDEXED BY oncegate_lane_open'
            ' WHERE state <> 1 AND state = 3 AND holder = ?"'
        ),
        "without AND state = 3",
    ): _NO_HOLDER,
    ("if destination is None:", "if False"): "nothing has a destination that is NULL",
    (
        '_NEXT_REPLAY: Final = "SELECT min(seq) FROM oncegate_replay WHERE lane = ? AND seq > ?"',
        "without AND seq > ?",
    ): _IN_ORDER,
    (
        '_NONCE: Final = "SELECT nonce FROM oncegate_replay WHERE lane = ? AND seq = ?"',
        "without AND seq = ?",
    ): "a lane is in one replay at a time, and that has one nonce",
}
_POSTGRES_CLAIMS: dict[tuple[str, str], str] = {
    (
        "if not (last and len(batch) == 1 and ends_for_good(batch[0])):",
        "if True",
    ): "the lease is written and taken away again in one transaction, which is slower and nothing else",
    (
        "if len(wanted) == 1:",
        "if False",
    ): "one alone is then a batch of one, which is slower and nothing else",
    ("if lost:", "if True"): "nothing is left to be judged",
    (
        "if last and len(settlements) == 1 and self._ends_plainly(settlements[0]):",
        "if False",
    ): "the same statement is found on the longer way",
    (
        "if answer is None or answer.decision.claims:",
        "if False",
    ): "the second arrival of a key loses on its fence then, and is judged again in the next round",
}
_POSTGRES_FUSED: dict[tuple[str, str], str] = {
    (
        "WHERE id = %s::bigint AND fence = %s::bigint AND state = 1",
        "without AND state = 1",
    ): _OWN_ROW,
}
_POSTGRES_LANES: dict[tuple[str, str], str] = {
    ("if len(places) < len(events):", "if True"): _ONE_STATEMENT,
    ("if len(limits) > 1:", "if True"): _ONE_STATEMENT,
    ("if len(busy) > 1:", "if True"): _ONE_STATEMENT,
    ("if empty:", "if True"): _NO_ROWS,
    ("if replay is not None:", "if True"): _NULL_SEQ,
}
_POSTGRES_LANE_STATEMENTS: dict[tuple[str, str], str] = {
    (
        "WHERE target.state <> 1 AND target.state = 3 AND target.holder = %s) AS head",
        "without AND target.state = 3",
    ): _NO_HOLDER,
    (
        "OR EXISTS (SELECT 1 FROM oncegate_ack WHERE lane = %s AND seq = %s AND fence = %s)",
        "without AND seq = %s",
    ): _ONE_FENCE,
    (
        "OR EXISTS (SELECT 1 FROM oncegate_dead_letter WHERE lane = %s AND seq = %s AND fence = %s)",
        "without AND seq = %s",
    ): _ONE_FENCE,
}
_POSTGRES_FEED: dict[tuple[str, str], str] = {
    (
        (
            "SELECT position, at FROM oncegate_feed"
            " WHERE tenant = %s AND position > %s ORDER BY position LIMIT %s"
        ),
        "without AND position > %s",
    ): _BELOW_FLOOR,
    (
        '"SELECT DISTINCT tenant FROM oncegate_feed WHERE position IS NULL AND at < %s ORDER BY tenant"',
        "without AND at < %s",
    ): "more events get their position, as from the next reader, and none of them is removed",
}
_SQLITE_FEED: dict[tuple[str, str], str] = {
    (
        (
            '"SELECT position, at FROM oncegate_feed'
            ' WHERE tenant = ? AND position > ? ORDER BY position LIMIT ?"'
        ),
        "without AND position > ?",
    ): _BELOW_FLOOR,
}
_EFFECTS: dict[tuple[str, str], str] = {
    (
        "if _must_record_start(call, recorded):",
        "if True (2)",
    ): "a start on record decides nothing where the downstream honours the key or can be asked",
    (
        "if call.downstream.is_unrepeatable:  # the only one worth a commit of its own",
        "if True",
    ): "every finished step gets a commit of its own then, which is slower and nothing else",
    ("claim.forget_saved(noted)", "left out"): _WRITTEN_AGAIN,
    (
        "if downstream.probe is None:",
        "if False",
    ): "a downstream is only asked if it was declared with a probe; the line is for the type checker",
}
_CLAIM: dict[tuple[str, str], str] = {
    ("if self.unsaved.get(step.name) is step:", "if False"): _WRITTEN_AGAIN,
    (
        "if self.unsaved.get(step.name) is step:",
        "if True",
    ): "an attempt uses a name once, and notes nothing new under it while it is being saved",
    ("self.unsaved.pop(step.name, None)", "left out"): _WRITTEN_AGAIN,
    ("if reserved.steps:", "if True"): "no steps are then no steps, and are removed once more at the end",
}
_FLOWS: dict[tuple[str, str], str] = {
    (
        "if not reserved.decision.claims:",
        "if True",
    ): "a reservation that claims is no replay, and is left as it is",
    (
        "if not reserved.decision.claims:",
        "if False (3)",
    ): "a reservation that claims nothing has fence 0, and settling under it changes nothing",
    (
        "if gate.value_follows or claim.left is not None:",
        "if True",
    ): "nothing is taken out where nothing is, which is slower and nothing else",
    (
        "if not reserved.decision.claims:",
        "if False (2)",
    ): "a reservation that claims nothing has fence 0, and settling under it changes nothing",
}
_PASSING: dict[tuple[str, str], str] = {
    (
        "if is_free and len(parameters) == 1 and not keywords:  # nearly every call",
        "if False",
    ): "the longer way adds the same key in the same place",
}
_RESOURCES: dict[tuple[str, str], str] = {
    ('if text.isascii() and "\\0" not in text:', "if False"): "nothing in such a text is replaced",
    ("if type(result) in _BARE:", "if False"): "none of these types has an id either, so none is found",
}
_CONFLICTS: dict[tuple[str, str], str] = {
    (
        "if not reserved.decision.claims:",
        "if False",
    ): "a reservation that claims nothing has fence 0, and settling under it changes nothing",
}
_SETTLING: dict[tuple[str, str], str] = {
    (
        "remember(gate, claim, _COMMITTED, outcome, None)",
        "left out (2)",
    ): "a repeat reads the same outcome from the ledger then, which is slower and nothing else",
    (
        "if gate.commits.store.capabilities.one_writer:",
        "if True",
    ): "elsewhere the same is found out with one look more",
}
_BY_FILE = {
    "gate/runtime/claim.py": _CLAIM,
    "gate/flows/conflicts.py": _CONFLICTS,
    "gate/flows/effects.py": _EFFECTS,
    "gate/flows/admit.py": _FLOWS,
    "gate/flows/key_injection.py": _PASSING,
    "gate/runtime/resources.py": _RESOURCES,
    "gate/flows/settlement.py": _SETTLING,
    "stores/postgres/claims.py": _POSTGRES_CLAIMS,
    "stores/postgres/feed.py": _POSTGRES_FEED,
    "stores/postgres/fused.py": _POSTGRES_FUSED,
    "stores/postgres/lane_statements.py": _POSTGRES_LANE_STATEMENTS,
    "stores/postgres/lanes.py": _POSTGRES_LANES,
    "stores/sqlite/claims.py": _SQLITE_CLAIMS,
    "stores/sqlite/feed.py": _SQLITE_FEED,
    "stores/sqlite/new_keys.py": _SQLITE_INSERTING,
    "stores/sqlite/lanes.py": _SQLITE_LANES,
    "stores/sqlite/bulk_settle.py": _SQLITE_SWEEPS,
}
ALIKE: dict[tuple[str, str, str], str] = {
    (file, *place): reason for file, places in _BY_FILE.items() for place, reason in places.items()
}
