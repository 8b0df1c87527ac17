"""The service's OpenAPI 3.1 document. `docs/openapi.json` is this, for the default settings.

python -m oncegate.service.openapi > docs/openapi.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, Final

from oncegate.feed.feed import PAGE_MAX
from oncegate.integrations.problems import MEDIA_TYPE, ProblemKind
from oncegate.model.event_types import TYPE_LENGTH_MAX
from oncegate.service.contract import WAIT_SECONDS_MAX

_TEXT: Final = {"type": "string"}
_ID: Final = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}
_NEW_ID: Final = {**_ID, "pattern": "^[ -\\-/-~]+$"}  # an id is signed, and a full stop would end it
_TYPE: Final = {**_ID, "maxLength": TYPE_LENGTH_MAX}
_ANYWHERE: Final = (408, 421, 431)  # what the server itself may answer, wherever a request goes
_REF: Final = "#/components/schemas/"


def document(prefix: str = "/wes/v1", *, metrics: bool = True) -> dict[str, Any]:
    """The document, with the contract under a prefix; without the counts where they are switched off."""
    counts = {"/metrics": {"get": _plain("Counts in the Prometheus text format", (200,))}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "oncegate", "version": "1", "summary": "Exactly-once effects over HTTP"},
        "paths": {
            "/in/{surface}": {"post": _webhook()},
            f"{prefix}/realtime": {"post": _call("Realtime", "Admission", "send")},
            f"{prefix}/confirmations": {"post": _call("Confirmation", "Admission", "send")},
            f"{prefix}/dispatch/pending": {"get": _pending()},
            f"{prefix}/dispatch/ack": {"post": _call("Cursor", "Ack", "read", more=(410,))},
            "/v1/events": {"post": _call("Event", "Published", "publish")},
            "/v1/events/{id}": {"get": _find_event()},
            "/livez": {"get": _plain("Whether the process runs", (200,))},
            "/readyz": {"get": _plain("Whether the ledger can be written", (200, 503))},
            **(counts if metrics else {}),
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"partner": {"type": "http", "scheme": "bearer"}},
        },
    }


def _webhook() -> dict[str, Any]:
    return {
        "summary": "An event from outside, signed as its surface asks",
        "parameters": [{"name": "surface", "in": "path", "required": True, "schema": _TEXT}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}},
        "responses": _responses(
            "Admission", (400, 401, 404, 405, 409, 413, 415, 422, 429, 500, 503), waits=True
        ),
    }


def _call(takes: str, gives: str, role: str, more: tuple[int, ...] = ()) -> dict[str, Any]:
    statuses = (400, 401, 403, 409, 413, 415, 422, 429, 500, 503, *more)
    return {
        "summary": f"{takes}, for partners with the role {role}",
        "security": [{"partner": []}],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": _REF + takes}}},
        },
        "responses": _responses(gives, statuses, waits=gives == "Admission"),
    }


def _pending() -> dict[str, Any]:
    limits = {"limit": (1, PAGE_MAX, 100), "wait": (0, WAIT_SECONDS_MAX, 0)}
    numbers = [
        {"name": name, "in": "query",
         "schema": {"type": "integer", "minimum": least, "maximum": most, "default": default}}
        for name, (least, most, default) in limits.items()
    ]  # fmt: skip
    return {
        "summary": "Events after a cursor, for partners with the role read",
        "security": [{"partner": []}],
        "parameters": [{"name": "since", "in": "query", "schema": _TEXT}, *numbers],
        "responses": _responses("Page", (400, 401, 403, 410, 429, 500, 503)),
    }


def _find_event() -> dict[str, Any]:
    return {
        "summary": "The seq of a published event, for partners with the role publish",
        "security": [{"partner": []}],
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": _ID}],
        "responses": _responses("Found", (400, 401, 403, 404, 405, 429, 500, 503)),
    }


def _plain(summary: str, statuses: tuple[int, ...]) -> dict[str, Any]:
    told = {str(status): {"description": summary} for status in statuses}
    return {"summary": summary, "responses": {**told, **_problems(_ANYWHERE)}}


def _responses(gives: str, statuses: tuple[int, ...], *, waits: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"200": _answer("done", "application/json", gives)}
    if waits:
        found["202"] = _answer("kept, and runs later or waits for a person", "application/json", "Waiting")
    return {**found, **_problems(sorted((*statuses, *_ANYWHERE)))}


def _problems(statuses: Iterable[int]) -> dict[str, Any]:
    found = {}
    for status in statuses:
        names = ", ".join(kind.slug for kind in ProblemKind if kind.status == status)
        found[str(status)] = _answer(names, MEDIA_TYPE, "Problem")
    return found


def _answer(description: str, media_type: str, schema: str) -> dict[str, Any]:
    return {"description": description, "content": {media_type: {"schema": {"$ref": _REF + schema}}}}


def _object(
    required: dict[str, Any], optional: dict[str, Any] | None = None, *, closed: bool = False
) -> Any:
    shape = {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}
    return {**shape, "additionalProperties": False} if closed else shape


def _schemas() -> dict[str, Any]:
    waiting = {"enum": ["accepted", "held", "quarantined"]}
    yes_no, whole = {"type": "boolean"}, {"type": "integer", "minimum": 1}
    correlation = {"correlation_id": {"type": "string", "format": "uuid"}}
    first_seen = {"first_seen": {"type": "string", "format": "date-time"}}
    why = {"reason": _TEXT, **first_seen, "skew_ms": {"type": "integer"}}
    window = {"type": "string", "minLength": 1, "maxLength": 120, "pattern": r"^\S(.*\S)?$"}
    return {
        "Admission": _object({"replay": yes_no, "key": _TEXT, "outcome": {}}, why),
        "Waiting": _object({"replay": yes_no, "state": waiting}, {"key": _TEXT, **why}),
        "Realtime": _object(correlation, {"partner_id": _TEXT}),
        "Confirmation": _object({**correlation, "window": window}, {"partner_id": _TEXT}),
        "Cursor": _object({"cursor": _TEXT}, closed=True),
        "Ack": _object({"cursor": _TEXT, "replay": yes_no}),
        "Event": _object({"id": _NEW_ID, "key": _ID, "data": {}}, {"type": _TYPE}, closed=True),
        "Published": _object({"id": _ID, "key": _ID, "seq": whole, "replay": yes_no}),
        "Found": _object({"id": _ID, "seq": whole}),
        "FeedEvent": _object(
            {"id": _ID, "key": _ID, "seq": whole, "published_at": {"type": "string", "format": "date-time"},
             "data": {}, "cursor": _TEXT},
            {"correlation_id": _TEXT, "traceparent": _TEXT, "tracestate": _TEXT, "planner_id": _TEXT,
             "type": _TYPE},
        ),
        "Page": _object(
            {"events": {"type": "array", "items": {"$ref": _REF + "FeedEvent"}}, "next_cursor": _TEXT,
             "has_more": yes_no}
        ),
        "Problem": _object({"type": _TEXT, "title": _TEXT, "status": whole, "detail": _TEXT}, why),
    }  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(json.dumps(document(), indent=2) + "\n")
