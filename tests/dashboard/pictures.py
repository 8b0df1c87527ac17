"""Makes the pictures of the operations page for the docs: `make pictures`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page

from oncegate.dashboard.operators import Role
from tests.dashboard.scene import Scene
from tests.dashboard.serving import add_operator, browser, served

SIZES = ((1280, "light"), (390, "dark"))
PAGES = ("", "/waiting", "/doubled", "/entries", "/lanes", "/replays", "/feed", "/surfaces", "/journal")

MORE = (
    ("/replays/abc", "replay"),
    ("/lane?destination=orders&tenant=acme&key=C-3", "lane"),
    ("/dead-letters", "dead-letters"),
    ("/surface?name=portbase.cis", "surface"),
    ("/trace?id=A-17", "trace"),
)


def take(page: Page, address: str, folder: Path, state: str, *, width: int) -> None:
    """One picture of every page."""
    for path in PAGES:
        page.goto(f"{address}{path or '/'}")
        name = path.strip("/") or "now"
        page.screenshot(path=folder / f"{name}-{state}-{width}.png")


def calm(scene: Scene) -> None:
    """An ordinary day: events come in and go out, and one was sent once more."""
    scene.quiet()
    scene.work()
    lane = scene.deliver("orders", "A-3", "acme", 4)
    scene.deliver("billing", "B-7", "", 2)
    scene.replay("orders", 0x7D1, "asked for by phone", lane_id=lane, seq_from=2, seq_to=2)
    scene.finish_replay("orders", 1)


def main(folder: Path) -> None:
    """Pictures of the states: empty, normal, incident; the incident also narrow and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, browser() as chromium:
        scene = Scene(f"sqlite:///{place}/oncegate.db")
        token = add_operator(scene.gate, "Ada", Role.APPROVER)
        with served(scene.gate.dashboard(login=True)) as address:
            for state, prepare in (
                ("empty", None),
                ("normal", lambda: calm(scene)),
                ("incident", scene.incident),
            ):
                if prepare is not None:
                    prepare()
                if state == "incident":
                    scene.plan_twice()
                    scene.replaying()
                for width, scheme in SIZES if state == "incident" else SIZES[:1]:
                    context = chromium.new_context(
                        viewport={"width": width, "height": 800},
                        color_scheme=scheme,  # type: ignore[arg-type]
                    )
                    page = context.new_page()
                    page.goto(f"{address}/login")
                    page.fill("input[name=token]", token)
                    page.click(".login button")
                    take(page, address, folder, state, width=width)
                    if state == "incident":
                        page.goto(f"{address}/waiting")
                        page.click("details.action >> nth=0 >> summary")
                        page.screenshot(path=folder / f"action-{state}-{width}.png")
                        page.goto(f"{address}/entries?q=state:unknown")
                        page.click("a[data-open] >> nth=0")
                        page.screenshot(path=folder / f"entry-{state}-{width}.png", full_page=True)
                        for path, name in MORE:
                            page.goto(f"{address}{path}")
                            page.screenshot(path=folder / f"{name}-{state}-{width}.png", full_page=True)
                    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
