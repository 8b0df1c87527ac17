"""The store contract: what a ledger must do, in six small protocols, and the values that cross it.

A store is written once, blocking and set-based, and knows nothing of tasks, threads or batching: the
group commit (`groupcommit.py`) calls it from one thread at a time per session and does the rest.

    Store     one ledger: opens sessions, migrates, checks durability, joins a user's transaction
    Session   one connection; `unit()` is one durable commit. It implements these protocols:
      Claims    reserve, renew, record steps, settle, attach, read
      Log       read what was recorded, in commit order
      Census    lists and counts for people and caretakers
      Pruning   forgets what is final and older than its retention
      Registry  small named documents, such as endpoints
      People    what persons decide about entries that wait for them
      Feed      published events in commit order, and their readers (`store/feed.py`)
      (Lanes    ordered outbound work; comes with the sender)

Three results. A call returns (done), raises StoreUnavailable or StoreRejected (not done: nothing was
changed), or raises StoreUnknown (it may have taken effect). After StoreUnknown the group commit opens a
new session and reads back each operation by its own token; no effect starts before that is answered.

Time. `Session.now_ticks()` is the ledger's own time in milliseconds: it does not follow wall-clock steps
and never runs backwards, except that a restart of the machine may take it back to the latest recorded
lease. Leases are kept in it. Wall times (`*_at_ms`) are for people.

`oncegate.testing.conformance` checks all of this on any store.
"""

from __future__ import annotations

from oncegate.store.census import Census, EntryDetail, EntryFilter
from oncegate.store.claims import (
    Attachment,
    Claims,
    Entry,
    Progress,
    Renewal,
    Reservation,
    Reserved,
    Settlement,
    Statement,
    StepRecord,
    StepState,
)
from oncegate.store.ledger import Capabilities, Durability, Finding, Joined, Migration, Session, Store
from oncegate.store.log import Log, LogKind, LogRecord
from oncegate.store.people import People, Ruling, RulingAnswer
from oncegate.store.pruning import Due, Forgetting, Pruning
from oncegate.store.registry import Document, DocumentChange, Registry

__all__ = [
    "Attachment",
    "Capabilities",
    "Census",
    "Claims",
    "Document",
    "DocumentChange",
    "Due",
    "Durability",
    "Entry",
    "EntryDetail",
    "EntryFilter",
    "Finding",
    "Forgetting",
    "Joined",
    "Log",
    "LogKind",
    "LogRecord",
    "Migration",
    "People",
    "Progress",
    "Pruning",
    "Registry",
    "Renewal",
    "Reservation",
    "Reserved",
    "Ruling",
    "RulingAnswer",
    "Session",
    "Settlement",
    "Statement",
    "StepRecord",
    "StepState",
    "Store",
]
