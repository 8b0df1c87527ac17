"""`python -m lab.mutation`: see `mutate.py`."""

from __future__ import annotations

import sys

from lab.mutation.mutate import main

if __name__ == "__main__":
    sys.exit(main())
