"""The public names: adding or removing one is a decision, so the list is written out here."""

from __future__ import annotations

import subprocess
import sys

import oncegate
import oncegate.testing

PUBLIC = [
    "Admission",
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


def test_the_package_exports_exactly_these_names() -> None:
    """Users import from `oncegate` and nowhere else."""
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


def test_the_testing_names_are_there() -> None:
    """What users' own tests build on."""
    assert {"ArmedCrashPoints", "CrashReached", "ManualClock"} <= set(oncegate.testing.__all__)
    for name in oncegate.testing.__all__:
        assert hasattr(oncegate.testing, name)
