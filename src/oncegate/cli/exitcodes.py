"""What the command line's exit codes mean: shown by `--help`, explained in docs/exit-codes.md.

The codes of errors are their classes' own (`errors.py`); here are the words for them, and the codes that
belong to no error of ours.
"""

from __future__ import annotations

from typing import Final

DONE: Final = 0
NOT_SO: Final = 1
USAGE: Final = 2
PENDING: Final = 5
UNKNOWN: Final = 7
UNEXPECTED: Final = 70  # EX_SOFTWARE of sysexits.h
SYSTEM_REFUSED: Final = 74  # EX_IOERR of sysexits.h
INTERRUPTED: Final = 130  # 128 + SIGINT, what a shell reports
OUTPUT_CLOSED: Final = 141  # 128 + SIGPIPE, what a shell reports

EXIT_CODES: Final[dict[int, str]] = {
    DONE: "done; every check passed",
    NOT_SO: "the answer is no: a check failed, or the entry does not exist",
    USAGE: "the command line, an address or a setting is wrong; nothing was done",
    3: "the ledger cannot be reached, read or written now",
    4: "the file is damaged, or is not a ledger or recording",
    PENDING: "the schema is missing, older or newer than this version needs",
    6: "the store would lose committed records",
    UNKNOWN: "not known: nothing was seen recently to decide by",
    UNEXPECTED: "a fault in oncegate itself; --debug shows where",
    SYSTEM_REFUSED: "the system refused something beside the ledger, such as printing",
    INTERRUPTED: "interrupted from the keyboard",
    OUTPUT_CLOSED: "the reader of the output stopped reading",
}
