"""Writes the generated pages of docs/, or with `--check` names those that are out of date."""

from __future__ import annotations

import sys

from lab import ROOT
from lab.site.pages import GENERATED


def main(arguments: list[str]) -> int:
    """Writes or checks all pages; returns the exit code."""
    stale = []
    for name, make in GENERATED.items():
        path, text = ROOT / "docs" / name, make()
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                path.write_text(text, "utf-8")
    for name in stale:
        print(f"docs/{name}: " + ("out of date" if "--check" in arguments else "written"))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
