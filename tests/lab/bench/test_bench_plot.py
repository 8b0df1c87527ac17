"""The picture of a measurement is well-formed, shows every figure, and is to scale."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from lab.bench.plot import BARS, as_svg, bars_of

DOCUMENT = {
    "pgbench": {"pgbench, two transactions, 8 clients": {"rate": 500}},
    "asyncpg": [{"name": "two transactions", "concurrency": 32, "rate": 125.0}],
    "gate": [{"name": "data <&>", "concurrency": 256, "rate": 1000.0}],
    "processes": {"4 processes, 64 at once each": {"rate": 250}},
}


def test_every_figure_is_drawn_to_scale() -> None:
    drawn = ET.fromstring(as_svg("title", bars_of(DOCUMENT)))
    name = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.attrib["width"]) for bar in drawn.iter(f"{name}rect")]
    texts = [text.text for text in drawn.iter(f"{name}text")]
    assert widths == [BARS / 2, BARS / 8, BARS, BARS / 4]
    assert {
        "500",
        "125",
        "1,000",
        "250",
        "gate, data <&>, 256 at once",
        "gate, 4 processes, 64 at once each",
    } <= set(texts)


def test_nothing_measured_is_an_empty_picture() -> None:
    assert "<rect" not in as_svg("title", [])
