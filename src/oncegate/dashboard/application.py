"""The page as an ASGI application: routes, doors, templates, headers. Mountable under any path.

Views and actions run in threads, since the ledger blocks. Must never change anything in answer to GET, and
never answer without the headers that keep stored text from becoming script.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from oncegate.dashboard.attempts import AttemptsView
from oncegate.dashboard.auth import (
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
)
from oncegate.dashboard.bulk_page import cancel_job, job_page, plan_entries, plan_lanes, start_job
from oncegate.dashboard.contact import Contact
from oncegate.dashboard.jobs import Jobs
from oncegate.dashboard.messages import FOREIGN, HERE_ONLY, OVER, REFUSALS, STALE, apology, message, missing
from oncegate.dashboard.operators import KnownOperator, Role, find_by_token
from oncegate.dashboard.pages import ACTS, NAVIGATION, checked, pages_of, section_of
from oncegate.dashboard.plans import Plans
from oncegate.dashboard.read_limits import Strangers, TooMany, in_thread
from oncegate.dashboard.reading import cookies_of, is_encrypted, path_of, place_of, read_form
from oncegate.dashboard.rendering import FOLDER, make_environment
from oncegate.dashboard.replay_plans import plan_replay
from oncegate.dashboard.request_context import Act, PageResponse, RequestContext, Tools, View
from oncegate.dashboard.rollback_page import ACTS as ROLLBACK_ACTS
from oncegate.dashboard.sessions import SessionBook, endings_of
from oncegate.dashboard.sign_in_return import (
    NEXT,
    SavedForm,
    after_sign_in,
    again,
    came_from,
    keep,
    sign_in_form,
    sign_in_path,
    unpack,
)
from oncegate.dashboard.sign_ins import SignIns
from oncegate.dashboard.waiting_page import badge
from oncegate.errors import OncegateError, StoreError
from oncegate.gate.facade import GateOnStore
from oncegate.store import Facet, Session, require

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
    **{f"icon{tone}.svg": "image/svg+xml" for tone in ("", "-red", "-grey")},
}


class OperationsPage:
    """The application's parts and how a request goes through them."""

    def __init__(self, tools: Tools, access: Access) -> None:
        self.tools = tools
        self.access = access
        self.jobs = Jobs(Plans(tools.commits, tools.clock), tools.clock)
        self.sign_ins = SignIns(tools)
        self.strangers = Strangers(tools.clock)
        self.attempts = AttemptsView(tools.clock)
        self.sessions = SessionBook(tools.commits, tools.clock)
        self.act_routes: list[Route] = []
        self.contact = Contact()
        self.templates = make_environment(tools.clock)

    def application(self) -> Starlette:
        """The routes. What changes something is POST only; anything else there is 405."""
        views = {**pages_of(self.tools.commits.store), "/jobs/{job}": job_page(self.jobs)}
        acts: dict[str, Act] = {
            **ACTS,
            "/plans/entries": plan_entries(self.jobs),
            "/plans/lanes": plan_lanes(self.jobs),
            "/plans/replay": plan_replay(self.jobs),
            "/jobs/{job}/start": start_job(self.jobs),
            "/jobs/{job}/cancel": cancel_job(self.jobs),
            **ROLLBACK_ACTS,
        }
        routes = [Route("/static/{name}", self.asset), Route("/login", self.login, methods=["GET", "POST"])]
        routes += [Route("/logout", self.logout, methods=["POST"])]
        routes += [Route(path, partial(self.show, view), methods=["GET"]) for path, view in views.items()]
        acting = [Route(path, partial(self.act, act), methods=["POST"]) for path, act in acts.items()]
        self.act_routes, routes = acting, [*routes, *acting]
        return Starlette(
            routes=routes,
            exception_handlers={
                HTTPException: self.http_error,
                TooMany: self.too_many,
                Exception: self.fault,
            },
        )

    async def asset(self, request: Request) -> Response:
        """Serves the script, the style and the icon; nothing else is a file."""
        name = request.path_params["name"]
        if name not in ASSETS:
            return self._render(request, missing(), ANYBODY)
        body = (FOLDER / "static" / name).read_bytes()
        headers = {**HEADERS, "cache-control": "max-age=300"}
        return Response(body, media_type=ASSETS[name], headers=headers)

    async def show(self, view: View, request: Request) -> Response:
        """Answers a GET: signs in first, if that is asked for."""
        if self._is_stranger(request):
            return self._to_sign_in(request)
        return await in_thread(self._show, view, request)

    def _show(self, view: View, request: Request) -> Response:
        try:
            with self.tools.look() as session:
                visitor = self._visitor(session, request)
                if visitor is None:
                    return self._to_sign_in(request)
                visit = self._visit(request, visitor)
                try:
                    answer = view(self.tools, session, checked(visit))
                except StoreError:
                    raise
                except OncegateError as error:
                    answer = apology(error)
                response = self._render(request, answer, visitor, badge(session, visitor.tenant))
                self.contact.found(self.tools.clock.wall_ms())
                return response
        except StoreError as error:
            lost = self.contact.lost(self.tools.clock.wall_ms(), error)
            return self._render(request, lost, ANYBODY)

    async def act(self, act: Act, request: Request) -> Response:
        """Answers a POST: from our own page, by a signed-in operator, with their form's token."""
        form = await read_form(request, None if self._is_stranger(request) else self._is_signed_in)
        if form is None:
            return self._render(request, message("Too large", "the form is too large", 413), ANYBODY)
        if not is_own_page(request.headers, request.url.scheme):
            return self._render(request, message("Refused", FOREIGN, 403), ANYBODY)
        if self._is_stranger(request):
            return self._render(request, self._sign_in_first(request, form), ANYBODY)
        return await in_thread(self._act, act, request, form)

    def _act(self, act: Act, request: Request, form: Mapping[str, str]) -> Response:
        visitor = ANYBODY
        try:
            with self.tools.look() as session:
                found = self._visitor(session, request)
            if found is None:
                return self._render(request, self._sign_in_first(request, form), ANYBODY)
            visitor = found
            if not is_form_token(visitor, form.get(FIELD, "")):
                return self._render(request, self._stale(request, visitor, form), visitor)
            answer = act(self.tools, checked(self._visit(request, visitor, form)))
        except OncegateError as error:
            answer = apology(error)
        return self._render(request, answer, visitor)

    def _is_stranger(self, request: Request) -> bool:
        """Whether a request has no session by its cookie alone: then the ledger is not asked."""
        return self.access is Access.LOGIN and all(map(self.strangers.has, cookies_of(request, COOKIE)))

    def _is_signed_in(self, request: Request) -> bool:
        """Whether the ledger knows the session, and forms may be sent in it."""
        try:
            with self.tools.look() as session:
                return bool((self._visitor(session, request) or ANYBODY).form_token)
        except OncegateError:
            return False

    def _visitor(self, session: Any, request: Request) -> Visitor | None:
        if self.access is Access.READ_ONLY:
            return ANYBODY
        self.strangers.learn(session)
        now_ms = self.tools.clock.wall_ms()
        found = (admit(session, cookie, now_ms) for cookie in cookies_of(request, COOKIE))
        return next((visitor for visitor in found if visitor is not None), None)

    def _visit(
        self, request: Request, visitor: Visitor, form: Mapping[str, str] | None = None
    ) -> RequestContext:
        return RequestContext(
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
            return self._render(request, sign_in_form(request.query_params.get(NEXT, "")), ANYBODY)
        form = await read_form(request)
        if form is None or not is_own_page(request.headers, request.url.scheme):
            return self._render(request, message("Refused", FOREIGN, 403), ANYBODY)
        return await in_thread(self._sign_in, request, form)

    def _sign_in(self, request: Request, form: Mapping[str, str]) -> Response:
        place, after, kept = place_of(request), form.get(NEXT, ""), self._kept(form)
        wait = self.attempts.wait_seconds(place)
        if wait:
            words = f"too many wrong tokens from your address; try again in {wait} s"
            response = self._render(request, sign_in_form(after, kept, words, 429), ANYBODY)
            response.headers["retry-after"] = str(wait)
            return response
        try:
            with self.tools.look() as session:
                known = find_by_token(session, form.get("token", "").strip())
                value = "" if known is None else self._opened(session, known)
                visitor = admit(session, value, self.tools.clock.wall_ms()) if value else None
        except StoreError as error:
            return self._render(request, apology(error), ANYBODY)
        if known is None or visitor is None:
            self.attempts.wrong(place)
            self.sign_ins.refused(place)
            words = "no operator has this token; it may have been removed"
            return self._render(request, sign_in_form(after, kept, words, 403), ANYBODY)
        self.sign_ins.admitted(known.operator, place)
        response = self._render(request, after_sign_in(visitor, after, kept), visitor)
        self._set_cookie(request, response, value, SESSION_MS // 1000)
        return response

    def _opened(self, session: Session, known: KnownOperator) -> str:
        generation = endings_of(session, known.operator.name).generation
        return issue(self.strangers.renew(session), known, self.tools.clock.wall_ms(), generation)

    def _kept(self, form: Mapping[str, str]) -> SavedForm | None:
        """The form that the visitor had filled in, if it goes to one of our actions."""
        kept = unpack(form.get("kept_path", ""), form.get("kept", ""))
        if kept is None or not any(route.path_regex.match(kept.path) for route in self.act_routes):
            return None
        return kept

    def _to_sign_in(self, request: Request) -> Response:
        """Leads to the sign-in and back. A script that asks for a fragment gets a status instead."""
        query = f"?{request.url.query}" if request.url.query else ""
        there = sign_in_path(f"{path_of(request)}{query}")
        if request.headers.get("x-oncegate-fragment") != "1":
            return self._go(request, there)
        return PlainTextResponse("the session is over; sign in again", 401, headers=HEADERS)

    def _sign_in_first(self, request: Request, form: Mapping[str, str]) -> PageResponse:
        """The sign-in for who sent a form without a session; the form is kept and shown again after it."""
        back = came_from(request.headers.get("referer", ""), request.scope.get("root_path", ""))
        return sign_in_form(back, keep(path_of(request), form), OVER, 401)

    def _stale(self, request: Request, visitor: Visitor, form: Mapping[str, str]) -> PageResponse:
        """A form of an earlier session: refused, and shown again to who may send it in this one."""
        kept = keep(path_of(request), form)
        if not visitor.form_token or not form.get(FIELD) or kept is None:
            return message("Refused", STALE, 403)
        back = came_from(request.headers.get("referer", ""), request.scope.get("root_path", ""))
        return again(kept, back, "The form belongs to an earlier session of yours.", 403)

    async def logout(self, request: Request) -> Response:
        """Ends the session, here and wherever else its cookie is; or every session of the operator."""
        form = await read_form(request)
        if form is None or not is_own_page(request.headers, request.url.scheme):
            return self._render(request, message("Refused", FOREIGN, 403), ANYBODY)
        if self._is_stranger(request):
            response = self._go(request, "/login")
        else:
            response = await in_thread(self._sign_out, request, bool(form.get("everywhere")))
        self._set_cookie(request, response, "", 0)
        return response

    def _sign_out(self, request: Request, everywhere: bool) -> Response:
        """Ends sessions in the ledger; the cookie goes whether or not that can be written."""
        try:
            with self.tools.look() as session:
                visitor = self._visitor(session, request)
            if visitor is None or not visitor.name:
                return self._go(request, "/login")
            place = place_of(request)
            if everywhere:
                self.sessions.end_all(visitor.name, visitor.name, f"everywhere, from {place}")
            else:
                self.sessions.end(visitor.name, visitor.session_id, visitor.until_ms, f"from {place}")
        except StoreError as error:
            LOG.warning("a session cannot be ended in the ledger: %s", error)
            return self._render(request, message("Signed out here only", HERE_ONLY, 503), ANYBODY)
        return self._go(request, "/login")

    def _set_cookie(self, request: Request, response: Response, value: str, age: int) -> None:
        response.set_cookie(
            COOKIE,
            value,
            max_age=age,
            path=request.scope.get("root_path", "") or "/",
            secure=is_encrypted(request),
            httponly=True,
            samesite="strict",
        )

    def _go(self, request: Request, path: str) -> Response:
        root = request.scope.get("root_path", "")
        return RedirectResponse(f"{root}{path}", status_code=303, headers=HEADERS)

    def http_error(self, request: Request, error: Exception) -> Response:
        """What the framework refuses, on a page of ours."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        words = REFUSALS.get(status, "refused")
        response = self._render(request, message("Not here", words, status), ANYBODY)
        for name, value in (getattr(error, "headers", None) or {}).items():
            response.headers[name] = value
        return response

    def too_many(self, request: Request, error: Exception) -> Response:
        """So many look at the page that one more would wait for too long."""
        words = "too many requests look at the ledger; load the page again in a moment"
        response = self._render(request, message("Not now", words, 503), ANYBODY)
        response.headers["retry-after"] = "1"
        return response

    def fault(self, request: Request, error: Exception) -> Response:
        """A fault of ours: on a page, with the same headers, and without what it was about."""
        LOG.error("the page failed at %s", path_of(request), exc_info=error)
        words = "the page failed here; what happened is in its log. Nothing else is affected"
        return self._render(request, message("A fault", words, 500), ANYBODY)

    def _navigation(self, visitor: Visitor) -> list[tuple[str, str, bool]]:
        """The pages a visitor may see; none before they have signed in."""
        if not visitor.name and self.access is Access.LOGIN:
            return []
        return [item for item in NAVIGATION if visitor.tenant is None or not item[2]]

    def _render(
        self, request: Request, answer: PageResponse, visitor: Visitor, waiting: str = ""
    ) -> Response:
        if answer.go_to is not None:
            return self._go(request, answer.go_to)
        if answer.text is not None:
            named = {"content-disposition": f'attachment; filename="{answer.file}"'} if answer.file else {}
            return PlainTextResponse(answer.text, headers={**HEADERS, **named})
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


def page_of(gate: GateOnStore, access: Access) -> Starlette:
    """The page of a gate's ledger."""
    signs_in = access is Access.LOGIN
    require(gate.engine.store, Facet.REVIEW if signs_in else Facet.OPEN_ENTRIES, "operations pages")
    tools = Tools(
        gate.engine.commits,
        gate.engine.clock,
        lambda: gate.engine.surfaces,
        downstreams=lambda: gate.engine.downstreams,
    )
    return OperationsPage(tools, access).application()
