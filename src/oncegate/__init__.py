"""oncegate: exactly-once effects over at-least-once events.

The public names are imported when they are first used, so that `oncegate --help` does not pay for the gate.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from oncegate.gate.codec.values import AnnotationWarning
    from oncegate.gate.flows.key_injection import KeyNotPassedWarning, StepNameWarning
    from oncegate.gate.functions import InjectedKey
    from oncegate.gate.once import AsyncOnce, Once
    from oncegate.gate.surface import Downstream
    from oncegate.model.content import Content
    from oncegate.sender.sender import Emitted
    from oncegate.wiring import Gate, open_store
    from oncegate.wiring.sender import Sender

__version__ = "0.1.0"

__all__ = [
    "Admission", "AnnotationWarning", "AsyncOnce", "Busy", "ClaimLost", "ConfigError", "Conflict",
    "Content", "Downstream", "Emitted", "EventError", "Failed", "Gate", "Held", "InjectedKey",
    "KeyNotPassedWarning", "NotApplied", "NotRun",
    "Once", "OncegateError", "OutcomeUnknown", "Quarantined", "RecordedFailure", "Sender",
    "StepNameWarning", "StoreError", "StoreUnavailable", "StoreUnknown", "UsageError", "Verdict",
    "open_store",
]  # fmt: skip

_HOMES = {
    "Admission": "gate.admission",
    "Verdict": "gate.admission",
    "AnnotationWarning": "gate.codec.values",
    "InjectedKey": "gate.functions",
    "KeyNotPassedWarning": "gate.flows.key_injection",
    "StepNameWarning": "gate.flows.key_injection",
    "AsyncOnce": "gate.once",
    "Once": "gate.once",
    "Downstream": "gate.surface",
    "Content": "model.content",
    "Emitted": "sender.sender",
    "Gate": "wiring",
    "Sender": "wiring.sender",
    "open_store": "wiring",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"oncegate.{_HOMES.get(name, 'errors')}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
