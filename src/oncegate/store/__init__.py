"""The store contract: what a ledger must do, in small protocols, and the values that cross it.

A store is written once, blocking and set-based, and knows nothing of tasks, threads or batching: the
group commit (`commit/group_commit.py`) calls it from one thread at a time per session and does the rest.

    Store     one ledger: opens sessions, migrates, checks durability, joins a user's transaction
    Session   one connection; `unit()` is one durable commit. It implements these protocols:
      Claims    reserve, record at once, renew, record steps, settle, attach, read
      Log       read what was recorded, in commit order
      Census    lists and counts for people and caretakers
      Pruning   forgets what is final and older than its retention
      Registry  small named documents, such as endpoints
      People    what persons decide about entries that wait for them
      Feed      published events in commit order, and their readers (`store/feed.py`)
      Lanes     ordered work: enqueue, lease heads, finish, fail, dead letters
      LaneDesk  what operators do to lanes and destinations, lists, pruning of deliveries
      Replays   the list of replays, and what became of each
      SeenByAll what processes have seen of late, for all of them
      Tallies   counts what was seen, for signals
      Positions how far ordered lanes of incoming events have come
      Traces    which entries and emitted events belong to one journey
      Browsing  lists for pages, and notes of what people looked at
      Attempts  the last failed attempts of each delivery
      Notices   what processes tell each other, for a while
      Contents  which events would change the same thing in the same way
      Resources second resources of one key or one target

Three results. A call returns (done), raises StoreUnavailable or StoreRejected (not done: nothing was
changed), or raises StoreUnknown (it may have taken effect). After StoreUnknown the group commit opens a
new session and reads back each operation by its own token; no effect starts before that is answered.

Time. `Session.now_ticks()` is the ledger's own time in milliseconds: it does not follow wall-clock steps
and never runs backwards, except that a restart of the machine may take it back to the latest recorded
lease. Leases are kept in it. Wall times (`*_at_ms`) are for people.

`oncegate.testing.conformance` checks all of this on any store.
"""

from __future__ import annotations

from oncegate.store.attempts import Attempt, Attempts
from oncegate.store.browsing import Browsing, Note
from oncegate.store.census import Census, EntryDetail, EntryFilter
from oncegate.store.claims import (
    Attachment,
    ClaimId,
    Claims,
    Entry,
    Renewal,
    Reservation,
    Reserved,
    Settlement,
    Statement,
    StepRecord,
    StepRecords,
    StepState,
)
from oncegate.store.contents import (
    ContentPage,
    Contents,
    Dismissal,
    Doubled,
    Duplicate,
    Flag,
    Flagged,
    Pair,
    Unscanned,
)
from oncegate.store.lane_desk import (
    DeadLetter,
    DeliveryView,
    DestinationView,
    HeadAnswer,
    HeadOrder,
    LaneDesk,
    LaneFilter,
    LaneName,
    LanePruned,
    LanePruning,
    LaneView,
    Replaying,
    ReplayWanted,
    Steering,
    replay_name,
)
from oncegate.store.lanes import (
    MAYBE_MORE_MS,
    Acknowledgement,
    Advanced,
    Delivery,
    DestinationState,
    Failure,
    GivenUp,
    HeadHeld,
    Heads,
    HeadsWanted,
    Lanes,
    LaneState,
    Outgoing,
    Placed,
    Placing,
    Policy,
    Throttling,
)
from oncegate.store.ledger import Capabilities, Durability, Finding, Joined, Migration, Session, Store
from oncegate.store.log import CLAIM_KINDS, ClaimNote, Log, LogKind, LogRecord, read_claim_note
from oncegate.store.notices import Notice, Notices, Posting
from oncegate.store.people import People, Ruling, RulingAnswer
from oncegate.store.positions import Positions, move_of
from oncegate.store.pruning import EVERY_TENANT, Due, Forgetting, Pruning, Tenants, UnusedNames
from oncegate.store.registry import Document, DocumentChange, Registry
from oncegate.store.replays import ReplayFilter, ReplayOrder, Replays, ReplayState
from oncegate.store.resources import (
    LateResource,
    ResourceDismissal,
    Resources,
    ResourceSeen,
    SecondResource,
)
from oncegate.store.seen import Before, Met, Seen, SeenByAll, SeenContent, SeenRepeat
from oncegate.store.tallies import Observations, Repeat, Tallies, Tally, Waiting, What
from oncegate.store.traces import TracedDelivery, TracedPublication, TraceLink, Traces

__all__ = [
    "CLAIM_KINDS",
    "EVERY_TENANT",
    "MAYBE_MORE_MS",
    "Acknowledgement",
    "Advanced",
    "Attachment",
    "Attempt",
    "Attempts",
    "Before",
    "Browsing",
    "Capabilities",
    "Census",
    "ClaimId",
    "ClaimNote",
    "Claims",
    "ContentPage",
    "Contents",
    "DeadLetter",
    "Delivery",
    "DeliveryView",
    "DestinationState",
    "DestinationView",
    "Dismissal",
    "Document",
    "DocumentChange",
    "Doubled",
    "Due",
    "Duplicate",
    "Durability",
    "Entry",
    "EntryDetail",
    "EntryFilter",
    "Failure",
    "Finding",
    "Flag",
    "Flagged",
    "Forgetting",
    "GivenUp",
    "HeadAnswer",
    "HeadHeld",
    "HeadOrder",
    "Heads",
    "HeadsWanted",
    "Joined",
    "LaneDesk",
    "LaneFilter",
    "LaneName",
    "LanePruned",
    "LanePruning",
    "LaneState",
    "LaneView",
    "Lanes",
    "LateResource",
    "Log",
    "LogKind",
    "LogRecord",
    "Met",
    "Migration",
    "Note",
    "Notice",
    "Notices",
    "Observations",
    "Outgoing",
    "Pair",
    "People",
    "Placed",
    "Placing",
    "Policy",
    "Positions",
    "Posting",
    "Pruning",
    "Registry",
    "Renewal",
    "Repeat",
    "ReplayFilter",
    "ReplayOrder",
    "ReplayState",
    "ReplayWanted",
    "Replaying",
    "Replays",
    "Reservation",
    "Reserved",
    "ResourceDismissal",
    "ResourceSeen",
    "Resources",
    "Ruling",
    "RulingAnswer",
    "SecondResource",
    "Seen",
    "SeenByAll",
    "SeenContent",
    "SeenRepeat",
    "Session",
    "Settlement",
    "Statement",
    "Steering",
    "StepRecord",
    "StepRecords",
    "StepState",
    "Store",
    "Tallies",
    "Tally",
    "Tenants",
    "Throttling",
    "TraceLink",
    "TracedDelivery",
    "TracedPublication",
    "Traces",
    "Unscanned",
    "UnusedNames",
    "Waiting",
    "What",
    "move_of",
    "read_claim_note",
    "replay_name",
]
