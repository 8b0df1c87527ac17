"""The OpenAPI document is what the service does: every route, and answers of the described shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oncegate.service.openapi import document
from tests.service.site import BEARER, Answer, Site
from tests.service.test_contract import V7

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_file_is_the_document() -> None:
    assert json.loads(FILE.read_text("utf-8")) == document()


def test_every_route_is_described_and_nothing_else(shared: Site) -> None:
    described = {
        (method.upper(), path) for path, methods in document()["paths"].items() for method in methods
    }
    served = {place for place in shared.service._routes if place[1] != "/openapi.json"}

    assert described - served == {("POST", "/in/{surface}"), ("GET", "/v1/events/{id}")}
    assert served - described == set()
    assert shared.call("GET", "/openapi.json").document == document()


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """As much of JSON Schema as the document uses for answers."""
    if "$ref" in schema:
        return _fits(value, document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if "type" in schema and type(value) is not kinds[schema["type"]]:
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        fits = all(_fits(value[name], one) for name, one in properties.items() if name in value)
        return fits and set(schema.get("required", ())) <= set(value)
    return not isinstance(value, list) or all(_fits(one, schema["items"]) for one in value)


def test_answers_have_the_described_status_and_shape(shared: Site) -> None:
    wes = "/wes/v1"
    calls: list[tuple[str, str, Answer]] = []

    def called(method: str, path: str, answer: Answer) -> None:
        calls.append((method, path, answer))

    def by_partner(method: str, path: str, body: Any = None) -> None:
        called(method, path.partition("?")[0], shared.partner(method, path, body))

    for event in ({"id": "o-1"}, {"id": "o-1", "x": 1}, {}, b"{"):
        called("POST", "/in/{surface}", shared.call("POST", "/in/hooks", event, BEARER))
    called("POST", "/in/{surface}", shared.call("POST", "/in/hooks", b"{}"))
    called("POST", "/in/{surface}", shared.call("POST", "/in/none", b"{}", BEARER))
    by_partner("POST", f"{wes}/realtime", {"correlation_id": V7})
    by_partner("POST", f"{wes}/confirmations", {"correlation_id": V7, "window": "w"})
    by_partner("POST", "/v1/events", {"id": "o-1", "key": "k", "data": 1})
    by_partner("POST", "/v1/events", {"id": 7, "key": "k", "data": 1})
    called("GET", "/v1/events/{id}", shared.partner("GET", "/v1/events/o-1"))
    called("GET", "/v1/events/{id}", shared.partner("GET", "/v1/events/o-2"))
    by_partner("GET", f"{wes}/dispatch/pending")
    by_partner("GET", f"{wes}/dispatch/pending?since=x")
    cursor = shared.partner("GET", f"{wes}/dispatch/pending").document["next_cursor"]
    by_partner("POST", f"{wes}/dispatch/ack", {"cursor": cursor})

    for method, path, answer in calls:
        described = document()["paths"][path][method.lower()]["responses"][str(answer.status)]
        ((media_type, content),) = described["content"].items()
        assert answer.headers["content-type"] == media_type
        assert _fits(answer.document, content["schema"]), (path, answer)
    assert {answer.status for _, _, answer in calls} >= {200, 202, 400, 404, 422}
