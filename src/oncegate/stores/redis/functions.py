"""The server-side functions of a Redis ledger: their text, their names, and how one of them is called.

The text is loaded as a function library where the server allows that, else as scripts. The library's name
holds a hash of the text: two versions of the program run side by side, each with its own. Must never call a
function by a name that another text may have.
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha1, sha256
from importlib.resources import files
from typing import Final

SOURCE: Final = files(__package__).joinpath("functions.lua").read_text("utf-8")
LIBRARY_PREFIX: Final = "oncegate_"
LIBRARY: Final = f"{LIBRARY_PREFIX}{sha256(SOURCE.encode()).hexdigest()[:12]}"


class Call(Enum):
    """An operation of the ledger, and whether it may run while the server is out of memory.

    What ends a claim may: it frees more than it takes, and a claim that cannot end is in doubt.
    """

    RESERVE = ("reserve", "")
    RENEW = ("renew", "allow-oom")
    PROGRESS = ("progress", "allow-oom")
    SETTLE = ("settle", "allow-oom")
    WITHDRAW = ("withdraw", "allow-oom")
    ATTACH = ("attach", "allow-oom")
    RULE = ("rule", "allow-oom")
    KEEP_TIME = ("keep_time", "allow-oom")
    SETTLE_DOUBT = ("settle_doubt", "allow-oom")
    READ_TIME = ("read_time", "no-writes")

    def __init__(self, word: str, flag: str) -> None:
        self.word = word
        self.function = f"{LIBRARY}_{word}"
        shebang = f"#!lua flags={flag}\n" if flag else "#!lua\n"
        self.script = f"{shebang}{SOURCE}\nreturn {word}(KEYS, ARGV)\n"
        self.digest = sha1(self.script.encode(), usedforsecurity=False).hexdigest()
        self.flag = flag
        self.by_name = (b"FCALL", self.function.encode(), b"3")
        self.by_digest = (b"EVALSHA", self.digest.encode(), b"3")


def library() -> str:
    """The text that `FUNCTION LOAD` takes."""
    registered = "\n".join(
        f"redis.register_function{{function_name='{call.function}', callback={call.word},"
        f" flags={{{repr(call.flag) if call.flag else ''}}}}}"
        for call in Call
    )
    return f"#!lua name={LIBRARY}\n{SOURCE}\n{registered}\n"
