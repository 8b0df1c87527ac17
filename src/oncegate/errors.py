"""Every error oncegate raises on purpose, as one tree.

    OncegateError
    ├── ConfigError                 the program or its settings are wrong; nothing was run
    │   ├── BadTemplate             a key template that cannot be used
    │   ├── BadDuration             a duration that cannot be read
    │   ├── BadUrl                  a store address that cannot be used
    │   ├── UnknownSurface          no surface of that name is registered
    │   ├── BadSource               a queue or a setting that cannot be consumed safely
    │   └── Unacceptable            what shall be sent, or where to, cannot be taken; HTTP status 422
    │       ├── BadEndpoint         an address that must not be called, or a setting that cannot be used
    │       ├── UnknownEndpoint     no endpoint of that name
    │       ├── BadSecret           a signing secret or key that cannot be used
    │       ├── BadHeader           a header that cannot be sent
    │       └── BadOutgoing         an event whose id, key, seq or payload cannot be sent
    ├── EventError                  the event itself cannot be taken
    │   ├── InputRefused            a field the key needs is missing or malformed
    │   ├── BadTimestamp            not RFC 3339 with an explicit offset
    │   ├── EventNotStorable        the event is not JSON
    │   └── RequestRefused          a request that should carry an event is not taken; has an HTTP status
    │       ├── MalformedRequest    400: a header or the body is missing or cannot be read
    │       ├── NotAuthentic        401: no valid signature, or one from another time
    │       ├── RequestTooLarge     413: larger than the limit
    │       └── EncodedBody         415: the body is compressed
    ├── NotRun                      the effect was not run, for a reason that is not a failure
    │   ├── Busy                    the key is in flight elsewhere
    │   │   └── Paused              the surface is paused by a person
    │   ├── Backlogged              too much waits already; nothing was stored; HTTP status 429
    │   ├── Conflict                the key is known with another content; HTTP status 422
    │   ├── Quarantined             the event waits in quarantine
    │   ├── OutcomeErased           the event ran before, and its outcome was erased; nothing was run
    │   └── Held                    the event waits for a person
    ├── CursorRefused               a cursor that was not given out here, for this tenant
    │   └── CursorExpired           a cursor whose place in the feed is not there any more
    ├── NotApplied                  raised by handlers: nothing happened, trying again is safe
    ├── Failed                      raised by handlers: final, never try again
    │   └── RecordedFailure         a replay of a key whose outcome was a final failure
    ├── ClaimLost                   another worker holds the key now; this one's write changed nothing
    ├── OutcomeUnknown              an effect may or may not have happened
    ├── BadRecording                a file of recorded arrivals that is damaged or of another version
    ├── JournalForked               a signed head outside the ledger does not fit the ledger's journal
    ├── NoteRefused                 a signed note that is damaged, or that no known key has signed
    ├── RulingRefused               a person's decision that cannot count as it was given; nothing changed
    ├── SnapshotError               a snapshot cannot be taken, read or trusted; none is counted as good
    │   ├── NoSuchSnapshot          no snapshot has that number or hash
    │   └── SnapshotFork            write-once storage holds another history than this ledger
    ├── PlanRefused                 a roll-back plan cannot be made, approved or applied; nothing changed
    ├── SourceUnavailable           a queue cannot be reached now; it is tried again
    ├── UsageError                  the handler used `once` in a way that cannot be made safe
    └── StoreError                  the store could not do its part
        ├── StoreUnavailable        it cannot be reached or written now
        │   ├── PartUnavailable     a part of it; other keys may go on
        │   ├── StoreFull           no space left
        │   └── StoreBusy           another process is writing
        ├── StoreUnknown            the call may or may not have taken effect
        ├── StoreRejected           the store refused a statement handed over by the user
        ├── StoreCorrupt            the file is damaged or is not a ledger
        ├── SchemaMismatch          the schema is missing, older or newer than this version needs
        └── DurabilityRefused       the store would lose committed records

Exit codes are what the command line returns when an error of that class ends it.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OncegateError(Exception):
    """The root: catch this to catch everything oncegate raises on purpose.

    `passed_into` is the claim whose handler let another event arrive, which this error has ended: what it
    says is about that other event. `retry_after_seconds` is how long the gate waits before the next
    attempt, where this error ended one.
    """

    exit_code: ClassVar[int] = 1
    passed_into: object = None
    retry_after_seconds: float | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as itself: another process gets the same error, whatever its class takes."""
        return _made_again, (type(self), self.args, vars(self))


def _made_again(kind: type[OncegateError], args: tuple[Any, ...], values: dict[str, Any]) -> OncegateError:
    error = kind.__new__(kind, *args)
    vars(error).update(values)
    return error


class ConfigError(OncegateError):
    """The program or its settings are wrong; nothing was run."""

    exit_code = 2


class BadTemplate(ConfigError):
    """A key template cannot be used."""


class BadDuration(ConfigError):
    """A duration cannot be read."""


class BadUrl(ConfigError):
    """A store address cannot be used."""


class UnknownSurface(ConfigError):
    """No surface of that name is registered."""


class BadSource(ConfigError):
    """A queue cannot be consumed safely as it is set up; the message names the setting to change."""


class Unacceptable(ConfigError):
    """What shall be sent, or where to, cannot be taken; nothing was stored or sent."""

    status: ClassVar[int] = 422


class BadEndpoint(Unacceptable):
    """The address of an endpoint must not be called."""


class UnknownEndpoint(Unacceptable):
    """No endpoint of that name is known to the ledger."""


class BadSecret(Unacceptable):
    """A signing secret or key cannot be used; the message never repeats it."""


class BadHeader(Unacceptable):
    """A header cannot be sent."""


class BadOutgoing(Unacceptable):
    """An event's id, key, seq or payload cannot be sent."""


class EventError(OncegateError):
    """The event itself cannot be taken."""


class InputRefused(EventError):
    """A field that the key needs is missing or malformed; the event is quarantined, never guessed."""

    def __init__(self, reason: str, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.reason = reason
        self.path = path
        self.detail = detail


class BadTimestamp(EventError):
    """A time is not RFC 3339 with an explicit offset."""


class EventNotStorable(EventError):
    """The event is not JSON and so can neither be recorded nor run again."""


class RequestRefused(EventError):
    """A request that should carry an event is not taken; nothing was run."""

    status: ClassVar[int] = 400


class MalformedRequest(RequestRefused):
    """A header or the body is missing or cannot be read."""


class NotAuthentic(RequestRefused):
    """There is no valid signature, or one from another time; `challenge` names what is asked for."""

    status = 401
    challenge = "Bearer"


class RequestTooLarge(RequestRefused):
    """The request is larger than the limit."""

    status = 413


class EncodedBody(RequestRefused):
    """The body is compressed, and its size and signature cannot be judged as it stands."""

    status = 415


class NotRun(OncegateError):
    """The effect was not run, for a reason that is not a failure of the effect."""


class Busy(NotRun):
    """The key is in flight elsewhere; nothing was run here."""

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Paused(Busy):
    """The surface is paused by a person; nothing was run or stored."""


class Backlogged(NotRun):
    """Too many events wait already: of one key, at a destination or for a person; it is not stored."""

    status: ClassVar[int] = 429

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Conflict(NotRun):
    """The key is known with another content; the recorded outcome is not revealed.

    `differs` names the fields in which the contents differ, as far as that is known; it has no values.
    """

    status: ClassVar[int] = 422
    differs: tuple[str, ...] = ()


class Quarantined(NotRun):
    """The event waits in quarantine; nothing was run."""


class OutcomeErased(NotRun):
    """The event ran before, and its outcome was erased since."""


class Held(NotRun):
    """The event waits for a person; nothing was run now."""


class CursorRefused(OncegateError):
    """A cursor was not given out by this ledger for this tenant; nothing was read or changed."""


class CursorExpired(CursorRefused):
    """A cursor stands before events that were removed, or beyond the end of a ledger that was restored."""


class NotApplied(OncegateError):
    """Raise this in an effect when it certainly did not happen: trying again is safe."""

    leaves_nothing: ClassVar[bool] = False  # a first attempt that ends so is not kept


class Failed(OncegateError):
    """Raise this in a handler when the failure is final: it is recorded and never tried again."""


class RecordedFailure(Failed):
    """The key's recorded outcome is a final failure; nothing was run."""


class ClaimLost(OncegateError):
    """Another worker holds the key now; this worker's write changed nothing."""


class OutcomeUnknown(OncegateError):
    """An effect may or may not have happened, and no system can say which."""


class BadRecording(OncegateError):
    """A file of recorded arrivals is damaged, cut off or of another version; nothing was played."""

    exit_code = 4


class JournalForked(OncegateError):
    """A signed head outside the ledger does not fit the ledger's journal; nothing was sealed."""


class NoteRefused(OncegateError):
    """A signed note is damaged, or no known key has signed it."""


class RulingRefused(OncegateError):
    """A person's decision cannot count as it was given; nothing was changed, and the message says why."""


class SnapshotError(OncegateError):
    """A snapshot cannot be taken, read or trusted; no part of it is counted as good."""

    exit_code = 4


class NoSuchSnapshot(SnapshotError):
    """No snapshot has the number or hash that was asked for; those that exist are good."""

    exit_code = 1


class SnapshotFork(SnapshotError):
    """The write-once storage holds another history than this ledger: a copy, or tampering."""


class PlanRefused(OncegateError):
    """A roll-back plan cannot be made, approved or applied; nothing was changed."""


class SourceUnavailable(OncegateError):
    """A queue cannot be reached now; its consumer waits and tries again."""

    exit_code = 3


class UsageError(OncegateError):
    """The handler used `once` in a way that cannot be made safe."""

    exit_code = 2


class StoreError(OncegateError):
    """The store could not do its part."""

    exit_code = 3


class StoreUnavailable(StoreError):
    """The store cannot be reached or written now; nothing was run."""


class PartUnavailable(StoreUnavailable):
    """A part of the store cannot be reached now; nothing of the call was done, other keys may go on."""


class StoreFull(StoreUnavailable):
    """The store has no space left; nothing was written."""


class StoreBusy(StoreUnavailable):
    """Another process is writing to the store; nothing was written."""


class StoreUnknown(StoreError):
    """The call may or may not have taken effect; read back before deciding anything."""


class StoreRejected(StoreError):
    """The store refused a statement that the handler handed over; its writes were undone."""


class StoreCorrupt(StoreError):
    """The file is damaged or is not an oncegate ledger."""

    exit_code = 4


class SchemaMismatch(StoreError):
    """The schema is missing, older or newer than this version needs."""

    exit_code = 5


class DurabilityRefused(StoreError):
    """The store's settings would lose committed records."""

    exit_code = 6
