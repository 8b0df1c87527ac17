"""The signals: for each its name, its limits, what it means and what to do. One list for all uses.

The evaluation, the command line, the alert rules and the dashboard are all made from it, so that they
cannot say different things. Limits are defaults; `Thresholds` changes them for one installation.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import ConfigError
from oncegate.signals.definition import Definition, Unit

DOUBLED: Final = Definition(
    "doubled",
    "Changes that ran twice",
    Unit.COUNT,
    "two events wanted the same change to the same target under different keys, and both ran",
    "oncegate duplicates list; undo one, or dismiss the pair if both were meant",
    "max by (surface) (oncegate_doubled_pairs)",
    page=1,
)
REPEATS_HIGH: Final = Definition(
    "repeat_ratio_high",
    "Repeats: share of arrivals already known",
    Unit.RATIO,
    "an upstream sends the same events again and again; 1 to 3 % is normal",
    "see which: oncegate signals repeats --surface SURFACE; then ask the sender",
    'max by (surface) (sum by (surface) (rate(oncegate_arrivals_total{known="yes"}[10m]))'
    ' / sum by (surface) (rate(oncegate_arrivals_total{known=~"yes|no"}[10m])))'
    ' and on (surface) sum by (surface) (increase(oncegate_arrivals_total{known="yes"}[10m])) >= 8',
    page=0.20,
)
REPEATS_ZERO: Final = Definition(
    "repeat_ratio_zero",
    "Repeats that were due and did not come",
    Unit.COUNT,
    "a busy feed without a single repeat: key derivation has probably broken, and repeats run again",
    "compare the keys of two deliveries of one event: oncegate entries list --surface SURFACE; look for a"
    " changed template or field. If this feed never repeats, say so: --no-repeats SURFACE",
    '(sum by (surface) (increase(oncegate_arrivals_total{known=~"yes|retry"}[1h])) == 0)'
    " + on (surface) 0.01 * sum by (surface) (increase(oncegate_arrivals_total[1h]))",
    page=10,
)
IN_FLIGHT_AGE: Final = Definition(
    "in_flight_age",
    "Age of the oldest entry in flight",
    Unit.SECONDS,
    "a key is reserved and no worker has finished it",
    "is the reconciler running? oncegate entries list --state in_flight --surface SURFACE",
    "max by (surface) (oncegate_in_flight_oldest_age_seconds)",
    page=600,
)
RETRIED_FOR: Final = Definition(
    "retried_for",
    "Longest time that an event is tried again and again",
    Unit.SECONDS,
    "an event is neither settled nor in front of a person, and attempt follows attempt",
    "what is in its way: oncegate entries list --state retryable --surface SURFACE",
    "max by (surface) (oncegate_retried_seconds)",
    ticket=6 * 3600,
    page=3 * 24 * 3600,
)
TWO_RESOURCES: Final = Definition(
    "resources_per_key", "Keys that own two resources or more", Unit.COUNT,
    "a downstream says that one key owns several resources, or a late worker brought another one back",
    "oncegate held list and oncegate resources list; cancel the one that is not needed",
    "max by (surface) (oncegate_keys_with_two_resources)", page=1,
)  # fmt: skip
TARGETS: Final = Definition(
    "resources_per_target", "Targets that got two resources or more", Unit.COUNT,
    "two events about one target, such as a container, each got a resource of their own",
    "oncegate resources list --surface SURFACE; cancel one and say undone, or meant",
    "max by (surface) (oncegate_targets_with_two_resources)", page=1,
)  # fmt: skip
FAILED: Final = Definition(
    "failed", "Events within an hour that ended as failed", Unit.COUNT,
    "a handler raised Failed or a final error, or answered 4xx: these events are not tried again",
    "oncegate entries list --state failed --surface SURFACE; once mended: oncegate entries retry",
    "sum by (surface) (increase(oncegate_failed_total[1h]))", ticket=1, page=20,
)  # fmt: skip
KEYLESS: Final = Definition(
    "sent_without_key",
    "Calls within an hour that did not take the key",
    Unit.COUNT,
    "a downstream is declared to honour the key, and calls go out without it: a retry may act twice there",
    "did a deploy drop it? give the named function a parameter idempotency_key or headers, or use"
    " once.headers",
    "sum by (surface) (increase(oncegate_effects_without_key_total[1h]))",
    ticket=1,
    page=10,
)
LATE_REPLAYS: Final = Definition(
    "late_replays",
    "Late replays within an hour",
    Unit.COUNT,
    "events come again long after they first did; harmless as long as their keys are remembered",
    "ask who replays, and compare with the surface's retention: oncegate signals repeats --surface SURFACE",
    'sum by (surface) (increase(oncegate_repeats_total{class="late_replay"}[1h]))',
    ticket=10,
)
SENDER_BUGS: Final = Definition(
    "sender_bugs",
    "Repeats within an hour that point at a fault of the sender",
    Unit.COUNT,
    "new ids for retries, old positions read again, one action under two ids, two contents under one",
    "oncegate signals repeats --surface SURFACE shows the evidence to send to them",
    "sum by (surface) (increase(oncegate_repeats_total"
    '{class=~"conflict|new_id_per_retry|stale_offset|split_action"}[1h]))',
    ticket=1,
)
RESERVATION_P99: Final = Definition(
    "reservation_p99",
    "Time that a reservation takes, 99 of 100",
    Unit.SECONDS,
    "the ledger answers slowly, and every event waits for it",
    "look at the ledger's disk or server, and at other work on it",
    "histogram_quantile(0.99,"
    " sum by (surface, le) (rate(oncegate_reservation_duration_seconds_bucket[10m])))",
    ticket=0.1,
    page=1.0,
)
RECONCILIATIONS: Final = Definition(
    "reconciliations",
    "Recovered after a crash or a failure, last hour",
    Unit.COUNT,
    "processes die, stall or fail with work in hand; a worker or the next delivery took it up",
    "look at the workers: memory, deployments, time limits",
    "sum by (surface) (increase(oncegate_reconciliations_total[1h]))",
    ticket=20,
)
QUARANTINES: Final = Definition(
    "quarantines",
    "Events in quarantine",
    Unit.COUNT,
    "events that cannot be read, dated or told apart were not run; nothing happens until a person decides",
    "oncegate quarantine list --surface SURFACE shows each with its reason, and where contents differ",
    'sum by (surface) (oncegate_entries_waiting{state="quarantined"})',
    page=1,
)
WAITING: Final = Definition(
    "waiting_for_person",
    "Entries that wait for a person",
    Unit.COUNT,
    "held, left in doubt or in quarantine: nothing happens until a person decides",
    "oncegate held list; oncegate quarantine list",
    'sum by (surface) (oncegate_entries_waiting{state=~"held|unknown|quarantined"})',
    ticket=1,
)
OVERDUE: Final = Definition(
    "overdue",
    "Decisions overdue: the longest wait",
    Unit.SECONDS,
    "a person should have decided by now",
    "oncegate held list, or quarantine list, --surface SURFACE, oldest first; call the person responsible",
    'max by (surface) (oncegate_waiting_oldest_age_seconds{state=~"held|unknown|quarantined"})',
    page=4 * 3600,
)
DEADLINE: Final = Definition(
    "deadline_missed",
    "Longest time past the limit for a decision",
    Unit.SECONDS,
    "a surface says within which time a person decides (decide_within), and none has (A4)",
    "oncegate held list --surface SURFACE; call the person responsible",
    "max by (surface) (oncegate_decision_late_seconds)",
    page=1,
)
LAPSED: Final = Definition(
    "reserved_not_settled",
    "Stranded work: claims whose lease is over",
    Unit.COUNT,
    "workers died and no reconciler has come yet; a few for a few seconds are normal after a crash",
    "run a worker: oncegate worker, or gate.worker() in a program",
    "sum by (surface) (oncegate_claims_lapsed)",
    ticket=5,
    page=100,
)
CLOCK_OFFSET: Final = Definition(
    "clock_offset",
    "Distance between this machine's clock and the ledger's",
    Unit.SECONDS,
    "one of the clocks is wrong; events may be put in quarantine for their time",
    "check the time service on this machine and on the database server",
    "max(abs(oncegate_clock_offset_seconds))",
    ticket=30,
    page=150,
    label="",
)
SCAN_BEHIND: Final = Definition(
    "content_scan_behind",
    "Age of the oldest event that the content scan has not looked at",
    Unit.SECONDS,
    "no scan runs, or it waits for a transaction that a client has left open on the database server",
    "run a worker; oncegate doctor names the transaction that the scan waits for",
    "max(oncegate_content_scan_behind_seconds)",
    ticket=3600,
    label="",
)
WENT_BACK: Final = Definition(
    "ledger_went_back",
    "Times the ledger went back, not decided yet",
    Unit.COUNT,
    "a failover or a restore lost records of events whose effects happened; what was remembered waits",
    "oncegate restored list; fence or release each event, then oncegate restored close",
    "max(oncegate_ledger_went_back)",
    page=1,
    label="",
)
LOST: Final = Definition(
    "sightings_lost",
    "Arrivals within an hour that could not be counted",
    Unit.COUNT,
    "the ledger could not be told what was seen; the other signals are too low by this much",
    "look whether the ledger can be written; the gate itself is not affected",
    "sum by (surface) (increase(oncegate_sightings_lost_total[1h]))",
    ticket=1,
)

LANES_BLOCKED: Final = Definition(
    "lanes_blocked",
    "Keys that are blocked by a dead letter",
    Unit.COUNT,
    "an event could not be delivered and its endpoint's policy is to block: nothing of that key is sent"
    " until a person decides",
    "oncegate lanes blocked --endpoint DESTINATION; then oncegate dead-letters retry, or skip",
    "max by (destination) (oncegate_lanes_blocked)",
    ticket=1,
    page=100,
    label="destination",
)
LANE_BLOCKED_AGE: Final = Definition(
    "lane_blocked_age",
    "Longest time that a key has been blocked",
    Unit.SECONDS,
    "a person should have decided by now; the events behind the dead letter are getting old",
    "oncegate lanes blocked --endpoint DESTINATION; call the operator of the receiver",
    "max by (destination) (oncegate_lane_blocked_oldest_age_seconds)",
    page=4 * 3600,
    label="destination",
)
DELIVERY_AGE: Final = Definition(
    "delivery_age",
    "Age of the oldest event that is not delivered",
    Unit.SECONDS,
    "no worker delivers to this destination, or what is delivered is not taken",
    "oncegate endpoints list tells its state and circuit; oncegate lanes list --endpoint DESTINATION the"
    " errors. Is oncegate worker, or serve, running?",
    "max by (destination) (oncegate_lane_oldest_event_age_seconds)",
    ticket=600,
    label="destination",
)

CIRCUIT_OPEN: Final = Definition(
    "circuit_open",
    "How long a destination or downstream has been failing as a whole",
    Unit.SECONDS,
    "its circuit is open: one delivery or call at a time tries, all others wait",
    "oncegate circuits tells the error; call the people who run DESTINATION",
    "max by (destination) (oncegate_circuit_open_seconds)",
    ticket=60,
    page=900,
    label="destination",
)
FEED_LAG: Final = Definition(
    "feed_lag",
    "Age of the oldest event that a reader of the feed has not acknowledged",
    Unit.SECONDS,
    "the reader has stopped, or is slower than what is published",
    "oncegate feed readers; call the people who run reader READER",
    "max by (reader) (oncegate_feed_oldest_unread_age_seconds)",
    ticket=600,
    page=3600,
    label="reader",
)
ARRIVALS_STOPPED: Final = Definition(
    "arrivals_stopped",
    "Arrivals that should have come and did not",
    Unit.COUNT,
    "nothing arrives on a surface that was busy at this time on every day of the past week",
    "does the sender still send, and does it reach us? oncegate entries list --surface SURFACE",
    "(sum by (surface) (increase(oncegate_arrivals_total[1h])) == 0) + on (surface)"
    " (sum by (surface) (increase(oncegate_arrivals_total[1h] offset 1d))"
    " < sum by (surface) (increase(oncegate_arrivals_total[1h] offset 7d))"
    " or sum by (surface) (increase(oncegate_arrivals_total[1h] offset 7d)))",
    ticket=5,
    page=20,
)
DRIFT: Final = Definition(
    "drift",
    "Windows whose confirmation differs from the realtime calls",
    Unit.COUNT,
    "realtime and confirmation of one window do not say the same: items are missing, or quantities differ",
    "oncegate signals drift --partner PARTNER; ask the partner which side is right",
    "max by (partner) (oncegate_windows_with_drift)",
    ticket=1,
    label="partner",
)
WORKER_ABSENT: Final = Definition(
    "worker_absent",
    "Time since a worker last looked after a surface",
    Unit.SECONDS,
    "no worker runs: what a crash interrupts waits for the next delivery, and nothing is pruned or scanned",
    "run one: oncegate worker, or gate.worker() in a program",
    "max by (surface) (oncegate_worker_absent_seconds)",
    ticket=60,
    page=300,
)

WATCH_ABSENT: Final = Definition(
    "watch_absent",
    "Time since a watch last looked at the signals",
    Unit.SECONDS,
    "no process watches this ledger: no alarm is raised by anything but what you look at now",
    "run one: oncegate worker, oncegate serve, or gate.worker() in a program",
    "max(oncegate_watch_absent_seconds)",
    ticket=60, page=900, label="",
)  # fmt: skip

SNAPSHOT_OVERDUE: Final = Definition(
    "snapshot_overdue",
    "Time since a snapshot was due and none was taken",
    Unit.SECONDS,
    "no snapshot of what the system believes: a roll-back would lead further back than it should",
    "oncegate snapshots take --app MODULE:GATE says why; is a worker running?",
    "max(oncegate_snapshot_overdue_seconds)", ticket=1, page=3600, label="",
)  # fmt: skip

SEAL_OVERDUE: Final = Definition(
    "seal_overdue", "Time since log records should have been sealed", Unit.SECONDS,
    "the journal does not grow, or does not fit a head outside: nothing new can be proved",
    "oncegate journal seal --once says why; oncegate journal verify --head FILE finds what was changed",
    "max(oncegate_seal_overdue_seconds)", ticket=60, page=3600, label="",
)  # fmt: skip

DEFINITIONS: Final = (
    DOUBLED, REPEATS_HIGH, REPEATS_ZERO, IN_FLIGHT_AGE, RETRIED_FOR, TWO_RESOURCES, TARGETS, FAILED,
    KEYLESS, LATE_REPLAYS, SENDER_BUGS, RESERVATION_P99, RECONCILIATIONS, QUARANTINES, WAITING,
    OVERDUE, DEADLINE, LAPSED, CLOCK_OFFSET, SCAN_BEHIND, WENT_BACK, LOST, LANES_BLOCKED, LANE_BLOCKED_AGE,
    DELIVERY_AGE, CIRCUIT_OPEN, FEED_LAG, ARRIVALS_STOPPED, WORKER_ABSENT, DRIFT, WATCH_ABSENT,
    SNAPSHOT_OVERDUE, SEAL_OVERDUE,
)  # fmt: skip
BY_NAME: Final[Mapping[str, Definition]] = {one.name: one for one in DEFINITIONS}


Limit = tuple[float | None, float | None]
Limits = dict[str, Limit]


class Thresholds(Struct, frozen=True):
    """Limits of one installation: those that differ, by signal, as (ticket, page).

    `places` has those of single surfaces, destinations or readers, by name and signal.

    `no_repeats` are surfaces on which nothing is ever sent twice, so that zero repeats mean nothing.
    """

    limits: Limits = {}
    no_repeats: frozenset[str] = frozenset()
    repeats_min: int = 8  # fewer repeats than this are chance on a quiet feed
    places: dict[str, Limits] = {}
    zero_share: float = 0.01  # expected of a feed that nothing is known of yet: the low end of normal

    def __post_init__(self) -> None:
        for limits in (self.limits, *self.places.values()):
            for name, pair in limits.items():
                _check(name, pair)

    def of(self, definition: Definition, place: str = "") -> Limit:
        """The limits for a ticket and for a page, at a place."""
        here = self.places.get(place, {})
        usual = self.limits.get(definition.name, (definition.ticket, definition.page))
        return here.get(definition.name, usual)

    def under(self, other: Thresholds) -> Thresholds:
        """The same with the other's limits on top."""
        places = {
            name: {**self.places.get(name, {}), **other.places.get(name, {})}
            for name in {**self.places, **other.places}
        }
        silent = self.no_repeats | other.no_repeats
        return replace(self, limits={**self.limits, **other.limits}, no_repeats=silent, places=places)


def _check(name: str, pair: object) -> None:
    if name not in BY_NAME:
        raise ConfigError(f"there is no signal {name!r}; signals are {', '.join(BY_NAME)}")
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ConfigError(f"limits of {name} are two, for a ticket and for a page; None: never")
    for value in pair:
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ConfigError(f"a limit of {name} is {value!r}, not a number")


CLEAR_SHARE: Final = 0.8  # an alarm calms only below so much of its limit,
CALM_FOR: Final = timedelta(minutes=5)  # and only after so long
