"""`python -m lab.fuzzing`: see `fuzz.py`."""

from __future__ import annotations

import sys

from lab.fuzzing.fuzz import main

if __name__ == "__main__":
    sys.exit(main())
