"""`Idempotency-Key` as a Django middleware: each request with a key is carried out once.

Settings are in ONCEGATE["IDEMPOTENCY_KEY"]: those of `oncegate.wsgi.IdempotencyKey`, with functions as
dotted paths. `caller` gets the request; by default the caller is the signed-in user.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.utils.module_loading import import_string

from oncegate.contrib.django.django_gate import gate
from oncegate.errors import ConfigError, OncegateError
from oncegate.gate.once import Once
from oncegate.integrations.middleware import Middleware, Passage
from oncegate.integrations.policy import caller_or_problem, event_of, live_exchange
from oncegate.integrations.problems import Problem
from oncegate.integrations.replies import Reply, ResponseBuffer

_FUNCTIONS = ("caller", "applies")


def caller_by_user(request: Any) -> str | None:
    """Tells callers apart by the user that AuthenticationMiddleware has found; None for a stranger."""
    user = getattr(request, "user", None)
    return f"user-{user.pk}" if user is not None and user.is_authenticated else None


class IdempotencyKeyMiddleware:
    """Stands below AuthenticationMiddleware in MIDDLEWARE. The view finds `request.oncegate_key`.

    With `uses_once` it also finds `request.once`, for effects and `once.commit()`.
    """

    sync_capable, async_capable = True, False

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response, self._keyed = get_response, _keyed()

    def __call__(self, request: Any) -> Any:
        """Serves a request."""
        return self._keyed.serve(request, self._get_response)


class _KeyedRequests(Middleware[None, Any]):
    """The one surface behind every instance: Django makes one for each handler, and tests many."""

    def serve(self, request: Any, get_response: Callable[[Any], Any]) -> Any:
        """Answers a request that needs a key through the gate, and any other one directly."""
        if request.method not in self._policy.methods or not self._applies(request):
            return get_response(request)
        header = request.META.get("HTTP_IDEMPOTENCY_KEY")
        key = self._policy.key_of([] if header is None else [header.encode("latin-1")])
        if key is None:
            return get_response(request)
        return _response(key if isinstance(key, Problem) else self._guard(key, request, get_response))

    def _guard(self, key: str, request: Any, get_response: Callable[[Any], Any]) -> Reply | Problem:
        caller = caller_or_problem(self._caller(request))
        if isinstance(caller, Problem):
            return caller
        if int(request.META.get("CONTENT_LENGTH") or 0) > self._policy.body_bytes_max:
            return self._policy.too_large()
        target = (request.method, request.path, request.META.get("QUERY_STRING", ""))
        event = event_of(key, target, request.META.get("CONTENT_TYPE") or "", request.body)
        passage = Passage((request, get_response))
        with passage:
            passage.conclude(self._gate.admit_sync(self._surface, event, tenant=caller))
        return passage.answer

    def _handler(self, uses_once: bool) -> Callable[..., Reply]:
        def run(event: Any, idempotency_key: str = "") -> Reply:
            return self._run({"oncegate_key": idempotency_key})

        def run_with_once(event: Any, once: Once) -> Reply:
            return self._run({"oncegate_key": once.key, "once": once})

        return run_with_once if uses_once else run

    def _run(self, additions: dict[str, Any]) -> Reply:
        exchange = live_exchange()
        request, get_response = exchange.request
        vars(request).update(additions)
        try:
            reply = _reply(get_response(request), self._policy.response_bytes_max)
        except Exception as error:
            if "once" in additions and isinstance(error, OncegateError):
                raise  # what the gate itself said through `once` is for the gate to judge
            raise self._policy.failure(None, error) from error
        return self._policy.conclude(exchange, reply)


@cache
def _keyed() -> _KeyedRequests:
    return _KeyedRequests(None, gate=gate, **{"caller": caller_by_user, **_settings()})


def _settings() -> dict[str, Any]:
    found = getattr(settings, "ONCEGATE", {}).get("IDEMPOTENCY_KEY", {})
    if not isinstance(found, dict):
        raise ConfigError('ONCEGATE["IDEMPOTENCY_KEY"] is a dict of the middleware\'s settings')
    return {name: import_string(value) if name in _FUNCTIONS else value for name, value in found.items()}


def _reply(response: Any, bytes_max: int) -> Reply:
    """A response of Django's, whole; a streaming one is gathered.

    It is not closed, as that would end the request: the response that is made of it will be.
    """
    gathered = ResponseBuffer(bytes_max)
    try:
        for part in response.streaming_content if response.streaming else (response.content,):
            gathered.add(part)
    finally:
        for close in getattr(response, "_resource_closers", ()) if response.streaming else ():
            close()
    headers = [
        *response.items(),
        *(("Set-Cookie", one.OutputString()) for one in response.cookies.values()),
    ]
    return Reply(response.status_code, tuple(headers), gathered.body, gathered.is_too_large)


def _response(answer: Reply | Problem) -> Any:
    made = HttpResponse(answer.body, status=answer.status)
    del made["Content-Type"]
    for name, value in answer.headers:
        if name.lower() == "set-cookie":
            made.cookies.load(value)
        else:
            made[name] = value
    return made
