"""oncegate: exactly-once effects over at-least-once events."""

from oncegate.errors import (
    Busy,
    ClaimLost,
    ConfigError,
    Conflict,
    EventError,
    Failed,
    Held,
    NotApplied,
    NotRun,
    OncegateError,
    OutcomeUnknown,
    Quarantined,
    RecordedFailure,
    StoreError,
    StoreUnavailable,
    StoreUnknown,
    UsageError,
)
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.effects import KeyNotPassedWarning
from oncegate.gate.once import AsyncOnce, Once
from oncegate.gate.surfaces import Downstream
from oncegate.wiring import Gate, open_store

__version__ = "0.1.0"

__all__ = [
    "Admission",
    "AsyncOnce",
    "Busy",
    "ClaimLost",
    "ConfigError",
    "Conflict",
    "Downstream",
    "EventError",
    "Failed",
    "Gate",
    "Held",
    "KeyNotPassedWarning",
    "NotApplied",
    "NotRun",
    "Once",
    "OncegateError",
    "OutcomeUnknown",
    "Quarantined",
    "RecordedFailure",
    "StoreError",
    "StoreUnavailable",
    "StoreUnknown",
    "UsageError",
    "Verdict",
    "open_store",
]
