"""The sealer of a ledger's journal, as the environment describes it, and the worker's job for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from oncegate.clock import Clock
from oncegate.crashpoints import CrashPoints
from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.journal.keys import load_signers
from oncegate.journal.publishing import HeadDestination, destinations_of
from oncegate.journal.sealer import Sealer
from oncegate.journal.trust import HEADS_VARIABLE, KEY_VARIABLE
from oncegate.maintenance.schedule import JobKind, PeriodicJob
from oncegate.model.durations import parse_duration
from oncegate.store import Store

EVERY_VARIABLE: Final = "ONCEGATE_JOURNAL_EVERY"  # how often the log is sealed
LOOK_EVERY: Final = timedelta(minutes=1)  # many records are sealed before the interval is over
_NO_KEY: Final = f"{KEY_VARIABLE} is not set; make a key: oncegate journal keygen journal.key"


def _poster(url: str) -> Callable[[bytes], None]:
    from oncegate.sender.posting import guarded_post
    from oncegate.sender.settings import policy_from_environment
    from oncegate.sender.urls import parse_endpoint_url

    policy = policy_from_environment()
    parse_endpoint_url(url, policy)
    post = guarded_post(policy)

    def send(head: bytes) -> None:
        status = post(url, head, {"content-type": "text/plain; charset=utf-8"})
        if not 200 <= status < 300:
            raise ConfigError(f"{url} answered {status} to a journal head; it is posted again")

    return send


def heads_outside(variables: Mapping[str, str] | None = None) -> list[HeadDestination]:
    """Where heads are published."""
    text = (os.environ if variables is None else variables).get(HEADS_VARIABLE)
    return destinations_of(text, _poster) if text else []


def seal_every() -> timedelta:
    """How often the log is sealed."""
    return parse_duration(os.environ.get(EVERY_VARIABLE) or "15m")


def is_sealing() -> bool:
    """Whether a key is set, so that the worker seals."""
    return bool(os.environ.get(KEY_VARIABLE))


def sealer(store: Store, clock: Clock, crashpoints: CrashPoints | None = None) -> Sealer:
    """The sealer that the environment describes; raises ConfigError without a key."""
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        raise ConfigError(_NO_KEY)
    return Sealer(
        store,
        clock,
        load_signers(key),
        destinations=heads_outside(),
        every=seal_every(),
        crashpoints=crashpoints,
    )


def journal_jobs(gate: GateOnStore, left_out: Mapping[JobKind, str] | None = None) -> list[PeriodicJob]:
    """The worker's job that seals; raises ConfigError without a key."""
    if left_out is not None and "journal" in left_out:
        return []
    engine = gate.engine
    made = sealer(engine.store, engine.clock, engine.crashpoints)
    return [PeriodicJob("sealer", min(LOOK_EVERY, seal_every()), run_once=made.run_once, kind="journal")]
