"""Every framework's example in docs/idempotency-key.md runs, and its problem pages are complete."""

from __future__ import annotations

import re
import wsgiref.simple_server
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from oncegate.integrations.problems import ProblemKind
from tests.integrations.callers import KEY, Answer, post, served
from tests.support.serving import running_server

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "idempotency-key.md").read_text("utf-8")
EXAMPLES: dict[str, str] = dict(
    re.findall(r"^## (\w+)\n(?:(?!^## ).)*?```python\n(.+?)```", GUIDE, re.MULTILINE | re.DOTALL)[:4]
)
ORDER = b'{"item": "tea"}'
HEADERS = {
    "Content-Type": "application/json",
    "Authorization": "Bearer anna",
    "Idempotency-Key": KEY,
}


@contextmanager
def wsgi_served(app: Any) -> Iterator[int]:
    """Serves a WSGI application with the standard library on a free port."""

    class Quiet(wsgiref.simple_server.WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with running_server(
        wsgiref.simple_server.make_server("127.0.0.1", 0, app, handler_class=Quiet)
    ) as port:
        yield port


def example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("ONCEGATE_URL", f"sqlite:///{tmp_path}/ledger.db")
    variables: dict[str, Any] = {"__name__": f"{name.lower()}_example"}
    exec(EXAMPLES[name], variables)  # the guide's own code, which this test is about
    return variables


def orders_twice(port: int) -> list[Answer]:
    answers = [post(port, "/orders", ORDER, HEADERS) for _ in range(2)]
    answers.append(post(port, "/orders", b'{"item": "milk"}', HEADERS))
    answers.append(post(port, "/orders", ORDER, {"Content-Type": "application/json"}))
    return answers


def check(answers: list[Answer]) -> None:
    assert [answer.status for answer in answers] == [201, 201, 422, 400]
    assert answers[0].body == answers[1].body
    assert [answer.replayed for answer in answers[:2]] == [False, True]


def test_all_four_examples_are_there() -> None:
    assert list(EXAMPLES) == ["FastAPI", "Starlette", "Flask", "Django"]


@pytest.mark.parametrize("name", ["FastAPI", "Starlette"])
def test_an_asgi_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over real sockets: once, then replayed."""
    program = example(name, tmp_path, monkeypatch)
    with served(program["app"]) as port:
        check(orders_twice(port))
    program["gate"].close()
    assert len(program["orders"]) == 1


def test_the_flask_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over real sockets: once, then replayed."""
    program = example("Flask", tmp_path, monkeypatch)
    with wsgi_served(program["app"]) as port:
        check(orders_twice(port))
    program["gate"].close()
    assert len(program["orders"]) == 1


ordered: list[bytes] = []


def _order(request: Any) -> Any:
    from django.http import JsonResponse

    ordered.append(request.body)
    return JsonResponse({"order": len(ordered)}, status=201)


class Urls:
    """What Django calls a URL configuration."""

    def __init__(self) -> None:
        from django.urls import path

        self.urlpatterns = [path("orders", _order)]


def test_the_django_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over real sockets: once, then replayed."""
    if not settings.configured:
        settings.configure()
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["*"], raising=False)
    monkeypatch.setattr(settings, "ROOT_URLCONF", Urls(), raising=False)
    monkeypatch.setattr(settings, "MIDDLEWARE", [], raising=False)
    ordered.clear()
    program = example("Django", tmp_path, monkeypatch)
    with wsgi_served(program["application"]) as port:
        check(orders_twice(port))
    program["gate"].close()
    assert ordered == [ORDER]


def test_a_dependency_that_fails_on_the_way_out_is_no_200(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastAPI leaves dependencies after the response was sent: here that is before it is (trap 4)."""
    program = example("FastAPI", tmp_path, monkeypatch)
    left: list[int] = []

    async def session() -> Any:
        yield "session"
        left.append(1)
        if len(left) == 1:
            raise RuntimeError("COMMIT failed")

    from fastapi import Depends

    @program["app"].post("/bookings")  # type: ignore[untyped-decorator]
    async def book(_: str = Depends(session)) -> dict[str, int]:
        return {"booked": 1}

    with served(program["app"]) as port:
        first, second, third = (post(port, "/bookings", b"{}", HEADERS) for _ in range(3))
    program["gate"].close()

    assert (first.status, second.status, third.status, len(left)) == (500, 409, 409, 1)


def test_every_problem_has_its_page() -> None:
    """And there is no page of a problem that does not exist."""
    titles = re.findall(r"^## (.+)$", (DOCS / "problems.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(titles) == sorted(kind.slug for kind in ProblemKind)
