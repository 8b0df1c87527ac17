"""The wards: an aiohttp application and a Starlette one."""

from __future__ import annotations

import json
import logging
import smtplib
from email.message import EmailMessage
from functools import partial

import aiohttp
from aiohttp import web
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from .store import Inbox

logger = logging.getLogger(__name__)
HTTP = web.AppKey("http", aiohttp.ClientSession)
INBOX = web.AppKey("inbox", Inbox)


async def bed_freed(request: web.Request) -> web.Response:
    body = await request.json()
    http = request.app[HTTP]
    async with http.post("https://cleaning.example/jobs", json={"bed": body["bed"]}) as reply:  # bad: OG001
        reply.raise_for_status()
    return web.json_response({"ok": True})


async def bed_taken(request: web.Request) -> web.Response:  # good: OG001, OG006
    body = await request.json()
    if not await request.app[INBOX].claim(body["event_id"]):
        logger.info("bed event %s came again", body["event_id"])
        return web.json_response({"ok": True})
    async with request.app[HTTP].post("https://meals.example/jobs", json={"bed": body["bed"]}) as reply:
        reply.raise_for_status()
    return web.json_response({"ok": True})


async def bed_state(request: web.Request, *, ward: str) -> web.Response:  # good: OG001
    async with request.app[HTTP].get(f"https://beds.example/{ward}") as reply:
        return web.json_response(await reply.json())


class Transfers(web.View):
    """Moves of patients."""

    async def get(self) -> web.Response:
        return web.json_response([])

    async def post(self) -> web.Response:
        body = await self.request.json()
        try:
            async with self.request.app[HTTP].post("https://porters.example/jobs", json=body) as reply:  # bad: OG001
                reply.raise_for_status()
        except Exception:  # bad: OG008
            logger.exception("porter was not called")
        return web.json_response({"ok": True})


def make_app() -> web.Application:
    app = web.Application()
    app.router.add_post("/beds/freed", bed_freed)
    app.add_routes([web.post("/beds/taken", bed_taken), web.get("/beds", partial(bed_state, ward="a"))])
    app.router.add_view("/transfers", Transfers)
    return app


def mail(to: str, text: str) -> None:
    message = EmailMessage()
    message["To"], message["Subject"] = to, "Ward"
    message.set_content(text)
    with smtplib.SMTP("mail") as server:
        server.send_message(message)  # bad: OG001


class Complaints(HTTPEndpoint):
    """Complaints go to the desk by mail."""

    async def post(self, request):
        form = json.loads(await request.body())
        mail("desk@clinic.example", form["text"])
        return PlainTextResponse("thanks")


async def health(request):
    return JSONResponse({"up": True})


starlette_app = Starlette(routes=[Route("/complaints", Complaints), Route("/health", health)])
