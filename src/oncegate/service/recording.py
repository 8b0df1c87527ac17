"""The recorder of a service: what `[record]` names, attached to the gate before the first event."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oncegate.gate.facade import GateOnStore
from oncegate.recorder import Recorder
from oncegate.recorder.rules_file import read_rules
from oncegate.service.config_loader import find_secrets
from oncegate.service.settings import RecordSettings
from oncegate.service.surfaces import mistakes_at


def open_recorder(gate: GateOnStore, settings: RecordSettings, environment: Mapping[str, str]) -> None:
    """Records what arrives, if a folder is named; raises ConfigError for rules that cannot be used."""
    if settings.folder is None:
        return
    with mistakes_at("record"):
        rules = {} if settings.rules is None else read_rules(Path(settings.rules))
        key = None
        if settings.key is not None:
            (secret,) = find_secrets("record.key", (settings.key,), environment)
            key = secret.encode()
        Recorder(settings.folder, rules, key=key).attach(gate)
