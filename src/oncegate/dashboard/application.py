"""The page as an ASGI application: routes, doors, templates, headers. Mountable under any path.

Views and actions run in threads, since the ledger blocks. Must never change anything in answer to GET, and
never answer without the headers that keep stored text from becoming script.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from oncegate.dashboard import deciding, lanes_page, replays_page
from oncegate.dashboard.bulk_page import cancel_job, job_page, plan_entries, plan_lanes, start_job
from oncegate.dashboard.doors import (
    ANYBODY,
    COOKIE,
    FIELD,
    SESSION_MS,
    Access,
    Visitor,
    admit,
    is_form_token,
    is_own_page,
    issue,
    session_key,
)
from oncegate.dashboard.jobs import Jobs
from oncegate.dashboard.operators import Role, find_by_token
from oncegate.dashboard.pages import HOT_PAGES, NAVIGATION, WHOLE_LEDGER, section_of
from oncegate.dashboard.plans import Plans
from oncegate.dashboard.reading import path_of, place_of, read_form
from oncegate.dashboard.rendering import FOLDER, make_environment
from oncegate.dashboard.replay_plans import plan_replay
from oncegate.dashboard.sign_ins import SignIns
from oncegate.dashboard.visits import Act, Answer, NotAllowed, NotHere, Tools, View, Visit
from oncegate.dashboard.waiting_page import badge
from oncegate.errors import OncegateError, StoreError
from oncegate.gate.gate import Gate

LOG: Final = logging.getLogger("oncegate.page")
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a browser would hide the Origin of our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
ASSETS: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class Page:
    """The application's parts and how a request goes through them."""

    def __init__(self, tools: Tools, access: Access) -> None:
        self.tools = tools
        self.access = access
        self.jobs = Jobs(Plans(tools.commits, tools.clock), tools.clock)
        self.sign_ins = SignIns(tools)
        self.templates = make_environment(tools.clock)

    def application(self) -> Starlette:
        """The routes. What changes something is POST only; anything else there is 405."""
        jobs = self.jobs
        views: dict[str, View] = {**HOT_PAGES, "/jobs/{job}": job_page(jobs)}
        acts: dict[str, Act] = {
            "/entries/{entry}/reveal": deciding.reveal,
            "/entries/{entry}/{verb}": deciding.decide,
            "/duplicates/{entry}/dismiss": deciding.dismiss,
            "/lanes/steer/{verb}": lanes_page.steer,
            "/lanes/replay": lanes_page.replay,
            "/lanes/order/{verb}": lanes_page.order,
            "/replays/{replay}/cancel": replays_page.cancel_replay,
            "/plans/entries": plan_entries(jobs),
            "/plans/lanes": plan_lanes(jobs),
            "/plans/replay": plan_replay(jobs),
            "/jobs/{job}/start": start_job(jobs),
            "/jobs/{job}/cancel": cancel_job(jobs),
        }
        routes = [Route("/static/{name}", self.asset, methods=["GET"])]
        routes += [Route("/login", self.login, methods=["GET", "POST"])]
        routes += [Route("/logout", self.logout, methods=["POST"])]
        routes += [Route(path, partial(self.show, view), methods=["GET"]) for path, view in views.items()]
        routes += [Route(path, partial(self.act, act), methods=["POST"]) for path, act in acts.items()]
        return Starlette(
            routes=routes, exception_handlers={HTTPException: self.http_error, Exception: self.fault}
        )

    async def asset(self, request: Request) -> Response:
        """Serves the script, the style and the icon; nothing else is a file."""
        name = request.path_params["name"]
        if name not in ASSETS:
            return self._render(request, _missing(), ANYBODY)
        body = (FOLDER / "static" / name).read_bytes()
        headers = {**HEADERS, "cache-control": "max-age=300"}
        return Response(body, media_type=ASSETS[name], headers=headers)

    async def show(self, view: View, request: Request) -> Response:
        """Answers a GET: signs in first, if that is asked for."""
        return await run_in_threadpool(self._show, view, request)

    def _show(self, view: View, request: Request) -> Response:
        try:
            with self.tools.look() as session:
                visitor = self._visitor(session, request)
                if visitor is None:
                    return self._go(request, "/login")
                visit = self._visit(request, visitor)
                try:
                    answer = view(self.tools, session, self._checked(visit))
                except OncegateError as error:
                    answer = _apology(error)
                return self._render(request, answer, visitor, badge(session, visitor.tenant))
        except StoreError as error:
            return self._render(request, _apology(error), ANYBODY)

    def _checked(self, visit: Visit) -> Visit:
        if any("\0" in text for given in (visit.query, visit.form, visit.parts) for text in given.values()):
            raise NotHere("there is no such page")  # PostgreSQL holds no such text, so nothing is called so
        if visit.tenant is not None and visit.path in WHOLE_LEDGER:
            raise NotHere("there is no such page")
        return visit

    async def act(self, act: Act, request: Request) -> Response:
        """Answers a POST: from our own page, by somebody signed in, with their form's token."""
        form = await read_form(request)
        if form is None:
            return self._render(request, _message("Too large", "the form is too large", 413), ANYBODY)
        if not is_own_page(request.headers, request.url.scheme):
            return self._render(request, _message("Refused", _FOREIGN, 403), ANYBODY)
        return await run_in_threadpool(self._act, act, request, form)

    def _act(self, act: Act, request: Request, form: Mapping[str, str]) -> Response:
        visitor = ANYBODY
        try:
            with self.tools.look() as session:
                found = self._visitor(session, request)
            if found is None:
                return self._go(request, "/login")
            visitor = found
            if not is_form_token(visitor, form.get(FIELD, "")):
                return self._render(request, _message("Refused", _STALE, 403), visitor)
            answer = act(self.tools, self._checked(self._visit(request, visitor, form)))
        except OncegateError as error:
            answer = _apology(error)
        return self._render(request, answer, visitor)

    def _visitor(self, session: Any, request: Request) -> Visitor | None:
        if self.access is Access.READ_ONLY:
            return ANYBODY
        cookie = request.cookies.get(COOKIE, "")
        return admit(session, cookie, self.tools.clock.wall_ms()) if cookie else None

    def _visit(self, request: Request, visitor: Visitor, form: Mapping[str, str] | None = None) -> Visit:
        return Visit(
            path=path_of(request),
            root=request.scope.get("root_path", ""),
            parts={name: str(value) for name, value in request.path_params.items()},
            query=dict(request.query_params),
            form=form or {},
            visitor=visitor,
        )

    async def login(self, request: Request) -> Response:
        """Shows the form, or takes a token and gives a session for it."""
        if self.access is Access.READ_ONLY:
            return self._go(request, "/")
        if request.method != "POST":
            return self._render(request, Answer("login.html", {"title": "Sign in"}), ANYBODY)
        form = await read_form(request)
        if form is None or not is_own_page(request.headers, request.url.scheme):
            return self._render(request, _message("Refused", _FOREIGN, 403), ANYBODY)
        return await run_in_threadpool(self._sign_in, request, form.get("token", "").strip())

    def _sign_in(self, request: Request, token: str) -> Response:
        try:
            with self.tools.look() as session:
                known = find_by_token(session, token)
                key = session_key(session)
        except StoreError as error:
            return self._render(request, _apology(error), ANYBODY)
        if known is None:
            self.sign_ins.refused(place_of(request))
            values = {"title": "Sign in", "refusal": "nobody has this token; it may have been removed"}
            return self._render(request, Answer("login.html", values, 403), ANYBODY)
        self.sign_ins.admitted(known.operator, place_of(request))
        response = self._go(request, "/waiting" if known.operator.tenant is not None else "/")
        value = issue(key, known, self.tools.clock.wall_ms())
        self._set_cookie(request, response, value, SESSION_MS // 1000)
        return response

    async def logout(self, request: Request) -> Response:
        """Ends the session in this browser."""
        if not is_own_page(request.headers, request.url.scheme):
            return self._render(request, _message("Refused", _FOREIGN, 403), ANYBODY)
        await run_in_threadpool(self._sign_out, request)
        response = self._go(request, "/login")
        self._set_cookie(request, response, "", 0)
        return response

    def _sign_out(self, request: Request) -> None:
        """Keeps on record who leaves; the cookie goes whether or not the ledger can be asked."""
        visitor = None
        with suppress(StoreError), self.tools.look() as session:
            visitor = self._visitor(session, request)
        if visitor is not None and visitor.name:
            self.sign_ins.left(visitor.name, place_of(request))

    def _set_cookie(self, request: Request, response: Response, value: str, age: int) -> None:
        response.set_cookie(
            COOKIE,
            value,
            max_age=age,
            path=request.scope.get("root_path", "") or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def _go(self, request: Request, path: str) -> Response:
        root = request.scope.get("root_path", "")
        return RedirectResponse(f"{root}{path}", status_code=303, headers=HEADERS)

    def http_error(self, request: Request, error: Exception) -> Response:
        """What the framework refuses, on a page of ours."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        words = {404: "there is no such page", 405: "this is not done by following a link"}
        response = self._render(
            request, _message("Not here", words.get(status, "refused"), status), ANYBODY
        )
        for name, value in (getattr(error, "headers", None) or {}).items():
            response.headers[name] = value
        return response

    def fault(self, request: Request, error: Exception) -> Response:
        """A fault of ours: on a page, with the same headers, and without what it was about."""
        LOG.error("the page failed at %s", path_of(request), exc_info=error)
        words = "the page failed here; what happened is in its log. Nothing else is affected"
        return self._render(request, _message("A fault", words, 500), ANYBODY)

    def _navigation(self, visitor: Visitor) -> list[tuple[str, str, bool]]:
        """The pages a visitor may see; none before they have signed in."""
        if not visitor.name and self.access is Access.LOGIN:
            return []
        return [item for item in NAVIGATION if visitor.tenant is None or not item[2]]

    def _render(self, request: Request, answer: Answer, visitor: Visitor, waiting: str = "") -> Response:
        if answer.go_to is not None:
            return self._go(request, answer.go_to)
        if answer.text is not None:
            return PlainTextResponse(answer.text, headers=HEADERS)
        values = {
            "root": request.scope.get("root_path", ""),
            "here": path_of(request),
            "section": section_of(path_of(request)),
            "visitor": visitor,
            "is_read_only": self.access is Access.READ_ONLY,
            "is_fragment": request.headers.get("x-oncegate-fragment") == "1",
            "navigation": self._navigation(visitor),
            "waiting_badge": waiting,
            "Role": Role,
            "refusal": None,
            "address": str(request.url.query),
            "form_field": FIELD,
        }
        html = self.templates.get_template(answer.template).render({**values, **answer.values})
        return HTMLResponse(html, answer.status, headers=HEADERS)


def page_of(gate: Gate, access: Access) -> Starlette:
    """The page of a gate's ledger."""
    tools = Tools(gate.commits, gate.clock, lambda: gate.surfaces, downstreams=lambda: gate.downstreams)
    return Page(tools, access).application()


_FOREIGN: Final = "the request does not come from this page; nothing was changed"
_STALE: Final = (
    "the form does not belong to your session, or you may only look here; nothing was changed."
    " Load the page again"
)


def _message(title: str, message: str, status: int) -> Answer:
    return Answer("message.html", {"title": title, "message": message}, status)


def _missing() -> Answer:
    return _message("Not here", "there is no such page", 404)


def _apology(error: OncegateError) -> Answer:
    """An error of ours as a page: what it says was written for people and holds no secret."""
    status = _STATUSES.get(type(error))
    if status is None:
        status = 503 if isinstance(error, StoreError) else 400
    return _message("Not done" if status != 404 else "Not here", str(error), status)


_STATUSES: Final[dict[type[OncegateError], int]] = {NotHere: 404, NotAllowed: 403}
