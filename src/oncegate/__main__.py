"""`python -m oncegate` is the same as `oncegate`."""

import sys

from oncegate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
