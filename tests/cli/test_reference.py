"""The reference in docs/cli.md is what the parsers say."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.cli.main import COMMANDS
from oncegate.cli.reference import reference


def test_reference_is_up_to_date():
    """Regenerate with: python -m oncegate.cli.reference > docs/cli.md."""
    committed = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    assert committed == reference()


@pytest.mark.slow
def test_every_command_is_in_the_reference():
    """A command that is not documented does not exist for users."""
    for name in COMMANDS:
        assert f"## oncegate {name}\n" in reference()
