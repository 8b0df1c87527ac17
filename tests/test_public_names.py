"""The public names: adding or removing one is a decision, so the list is written out here."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import oncegate
import oncegate.testing
from oncegate import Gate
from oncegate.maintenance import jobs
from oncegate.maintenance.background import GRACE
from oncegate.maintenance.lane_pruner import KEEP_DELIVERED
from oncegate.model.content import WINDOW
from oncegate.model.durations import parse_duration
from oncegate.signals.watch import WATCH_EVERY

ROOT = Path(__file__).parents[1]

PUBLIC = [
    "Admission",
    "AnnotationWarning",
    "AsyncOnce",
    "Busy",
    "ClaimLost",
    "ConfigError",
    "Conflict",
    "Content",
    "Downstream",
    "Emitted",
    "EventError",
    "Failed",
    "Gate",
    "Held",
    "InjectedKey",
    "KeyNotPassedWarning",
    "NotApplied",
    "NotRun",
    "Once",
    "OncegateError",
    "OutcomeUnknown",
    "Quarantined",
    "RecordedFailure",
    "Sender",
    "StepNameWarning",
    "StoreError",
    "StoreUnavailable",
    "StoreUnknown",
    "UsageError",
    "Verdict",
    "open_store",
]

# What users see of a gate, and the one name for our own packages.
GATE = [
    "admit",
    "admit_sync",
    "belief",
    "check_surfaces",
    "close",
    "consume",
    "dashboard",
    "downstream",
    "engine",
    "handler",
    "lambda_handler",
    "mutation",
    "once",
    "people",
    "snapshots",
    "sources",
    "worker",
]
# What the docs tell users to import besides the names of the root.
DOCUMENTED = {
    "oncegate.asgi": {"IdempotencyKey", "caller_by_authorization"},
    "oncegate.contrib.django": {"DjangoGate", "gate"},
    "oncegate.feed": {"Feed", "HttpSource", "consume", "through_gate"},
    "oncegate.maintenance.pruner": {"Pruner"},
    "oncegate.receiver": {"Receiver"},
    "oncegate.recorder": {"Recorder", "Rules"},
    "oncegate.review.decisions": {"StepDecision"},
    "oncegate.signals.definitions": {"Thresholds"},
    "oncegate.integrations.celery": {"gate_task"},
    "oncegate.integrations.dramatiq": {"gate_actor"},
    "oncegate.integrations.faststream": {"subscribe"},
    "oncegate.signals.prometheus": {"GateCollector"},
    "oncegate.signals.tracing": {"trace"},
    "oncegate.signatures": {"Headers", "HmacSecret", "StandardWebhooks", "sign"},
    "oncegate.sources": {"Kafka", "Nats", "RabbitMq", "RedisStream", "Sqs"},
    "oncegate.testing.conformance": {"ClaimsConformance"},
    "oncegate.wsgi": {"IdempotencyKey", "caller_by_authorization"},
}
DEFAULTS = {
    "reconcile_every": jobs.RECONCILE_EVERY,
    "prune_every": jobs.PRUNE_EVERY,
    "scan_every": jobs.SCAN_EVERY,
    "scan_window": WINDOW,
    "keep_delivered": KEEP_DELIVERED,
    "watch_every": WATCH_EVERY,
    "feed_retention": jobs.FEED_RETENTION,
    "grace": GRACE,
}


def test_the_package_exports_exactly_these_names() -> None:
    """Most programs import from `oncegate` only."""
    assert sorted(oncegate.__all__) == PUBLIC


def test_every_public_name_is_there_and_is_what_it_is_called() -> None:
    """Each is found, and is the thing itself, not another one of its name."""
    for name in PUBLIC:
        assert getattr(oncegate, name).__name__ == name
        assert name in dir(oncegate)


def test_a_star_import_gives_the_public_names() -> None:
    """`from oncegate import *` in a notebook."""
    names: dict[str, object] = {}
    exec("from oncegate import *", names)
    assert set(PUBLIC) <= set(names)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    """As for any module; a spelling mistake is not an import of something else."""
    assert not hasattr(oncegate, "Gat")


def test_importing_the_package_reads_no_store() -> None:
    """The first import is quick, and needs no optional dependency."""
    program = "import sys, oncegate; print('sqlite3' in sys.modules, 'oncegate.stores' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.slow
def test_a_gate_loads_only_what_it_needs() -> None:
    """A program that admits events pays neither for background work nor for signals nor for the sender."""
    program = (
        "import sys; from oncegate import Gate;"
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('oncegate.')})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    needed = {"clock", "commit", "config", "crashpoints", "errors", "gate", "model", "store", "wiring"}
    assert set(done.stdout.split()) == needed


def test_the_defaults_of_background_work_are_those_of_its_jobs() -> None:
    """The signature spells them as texts, so that a gate does not load the jobs."""
    given = inspect.signature(Gate.worker).parameters
    assert {name: parse_duration(given[name].default) for name in DEFAULTS} == DEFAULTS


def test_the_testing_names_are_there() -> None:
    """What users' own tests build on."""
    assert {"ArmedCrashPoints", "CrashReached", "ManualClock"} <= set(oncegate.testing.__all__)
    for name in oncegate.testing.__all__:
        assert hasattr(oncegate.testing, name)


def test_a_gate_shows_users_exactly_these_names() -> None:
    """About ten methods; what only our own packages need is behind `engine`."""
    with Gate("sqlite:///unused.db") as gate:
        assert [name for name in dir(gate) if not name.startswith("_")] == GATE


def test_the_docs_import_exactly_these_names() -> None:
    """What the docs tell users to import is public: it exists, and a new name is a decision."""
    found: dict[str, set[str]] = {}
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for module, names in _imports(page.read_text(encoding="utf-8")):
            found.setdefault(module, set()).update(names)
    assert found.pop("oncegate") <= set(PUBLIC)
    assert found == DOCUMENTED
    for module, expected in DOCUMENTED.items():
        assert all(hasattr(import_module(module), name) for name in expected)


@pytest.mark.parametrize("old", ["upkeep.rulings", "upkeep.pruner", "upkeep"])
def test_an_old_module_names_the_new_one(old: str) -> None:
    """One clear error, whatever a program imported from there."""
    with pytest.raises(ImportError, match=r"oncegate\.maintenance\.pruner.*oncegate\.review\.decisions"):
        import_module(f"oncegate.{old}")


@pytest.mark.parametrize(
    ("old", "new"), [("store", "it is gate.engine.store now"), ("nothing", "a gate has no 'nothing'$")]
)
def test_an_old_name_of_a_gate_names_the_new_one(old: str, new: str) -> None:
    """A name that never existed is a plain mistake."""
    with Gate("sqlite:///unused.db") as gate, pytest.raises(AttributeError, match=new):
        getattr(gate, old)


def _imports(page: str) -> list[tuple[str, set[str]]]:
    """What a page imports from oncegate, in its Python blocks."""
    blocks = re.findall(r"(?ms)^ *```python\n(.*?)^ *```", page)
    text = "\n".join(map(textwrap.dedent, blocks))
    lines = re.findall(r"(?m)^from oncegate.*? import (?:\([^)]*\)|.*)$", text)
    parsed = [ast.parse(line).body[0] for line in lines]
    return [
        (str(one.module), {name.name for name in one.names})
        for one in parsed
        if isinstance(one, ast.ImportFrom)
    ]
