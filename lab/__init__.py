"""The lab: what checks and measures oncegate, in a clone. It is not part of the wheel.

Benchmarks beside peers, the simulator, the broken-gate suite, incidents, mutation, fuzzing, models and the
crash matrix. `python -m lab` is its command line. `oncegate` never imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]  # of the clone; child processes find `lab` from here
