"""The list of generated files of docs/, each with the function that makes its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lab.site.errors_page import errors_page
from lab.site.settings_page import settings_page
from lab.site.state_diagram import life_page, state_diagram

GENERATED: Final[dict[str, Callable[[], str]]] = {
    "errors.md": errors_page,
    "settings.md": settings_page,
    "images/states.svg": state_diagram,
    "life-of-an-event.md": life_page,
}
