"""MCP tools, Flask hooks and oncegate handlers of a help desk."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from functools import wraps
from typing import Callable, ParamSpec, TypeVar

import httpx
import redis
import requests
import stripe
from flask import Blueprint, Flask, abort, current_app, g, jsonify, request
from flask.views import MethodView
from flask_sqlalchemy import SQLAlchemy
from mcp.server.fastmcp import Context, FastMCP
from sqlalchemy.exc import IntegrityError

import oncegate
from oncegate import ClaimLost, Gate

P = ParamSpec("P")
R = TypeVar("R")
mcp = FastMCP("desk")
app = Flask(__name__)
hooks = Blueprint("hooks", __name__, url_prefix="/hooks")
db = SQLAlchemy(app)
log = logging.getLogger(__name__)
kv = redis.Redis.from_url("redis://")
gate = Gate.open("sqlite:///desk.db")
bank = oncegate.downstream("bank")


class Ticket(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    external_id = db.Column(db.String, unique=True)
    text = db.Column(db.String)


@mcp.tool()
async def refund_customer(payment_intent: str, amount: int, ctx: Context) -> str:
    """Refunds a payment."""
    refund = await stripe.Refund.create_async(payment_intent=payment_intent, amount=amount)  # bad: OG001, OG009
    return refund.id


@mcp.tool(name="refund_once")
async def refund_once(refund_id: str, payment_intent: str) -> str:  # good: OG001, OG009
    refund = await stripe.Refund.create_async(payment_intent=payment_intent, idempotency_key=f"desk-{refund_id}")
    return refund.id


@mcp.tool()
def open_ticket(text: str) -> str:
    return httpx.post("https://desk.example/tickets", json={"text": text}).json()["id"]  # bad: OG001


@mcp.tool()
def find_tickets(text: str) -> list[dict]:  # good: OG001
    return httpx.post("https://desk.example/tickets/search", json={"text": text}).json()


@mcp.tool()
async def escalate(ticket: str) -> str:
    key = f"escalate-{ticket}-{int(time.time())}"
    async with httpx.AsyncClient() as client:
        answer = await client.post("https://pager.example/pages", json={"ticket": ticket}, headers={"Idempotency-Key": key})  # bad: OG012
    return answer.text


def deduplicated(field: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Answers a repeat with 200."""

    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        @wraps(view)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            key = request.get_json()[field]
            if not kv.set(f"hook:{key}", "1", nx=True):
                current_app.logger.info("hook %s came again", key)
                return jsonify(status="repeat")
            return view(*args, **kwargs)

        return wrapper

    return decorate


def silently(view):
    @wraps(view)
    def wrapper(*args, **kwargs):
        if kv.set("hook:" + request.json["id"], "1", nx=True) is None:
            return "", 204  # bad: OG006
        return view(*args, **kwargs)

    return wrapper


@hooks.post("/mail")
@deduplicated("mail_id")
def mailed():  # good: OG001, OG006
    requests.post("https://desk.example/tickets", json=request.get_json())
    return jsonify(status="ok")


@hooks.post("/chat")
@silently
def chatted():
    requests.post("https://desk.example/tickets", json=request.get_json())
    return jsonify(status="ok")


@hooks.route("/call", methods=["POST"])
def called():
    body = request.get_json(force=True)
    requests.post("https://desk.example/tickets", json=body)  # bad: OG001
    return "", 204


@hooks.route("/form", methods=["POST"])
def form():  # good: OG001, OG004, OG006
    body = request.get_json()
    db.session.add(Ticket(external_id=body["id"], text=body["text"]))
    try:
        db.session.commit()
    except IntegrityError:
        db.session.rollback()
        app.logger.info("form %s came again", body["id"])
    return "", 204


@hooks.before_request
def authenticate():
    if request.headers.get("X-Token") != current_app.config["TOKEN"]:
        abort(401)
    g.started = time.monotonic()


class Escalations(MethodView):
    def get(self):
        return jsonify([])

    def post(self):
        body = request.get_json()
        ticket = Ticket.query.filter_by(external_id=body["id"]).first()  # bad: OG005
        if ticket:
            log.info("ticket %s exists", ticket.id)
            return jsonify(id=ticket.id)
        requests.post("https://pager.example/pages", json=body)
        db.session.add(Ticket(external_id=body["id"], text=body["text"]))
        db.session.commit()
        return jsonify(id=None), 201


app.add_url_rule("/escalations", view_func=Escalations.as_view("escalations"))
app.register_blueprint(hooks)


@gate.handler("desk.refunds", key="{refund_id}")
async def on_refund(event, once):  # good: OG014
    return await once.effect(bank, lambda key: httpx.post("https://bank.example/refunds", headers={"Idempotency-Key": key}))


@gate.handler("desk.charges", key="{charge_id}")
async def on_charge(event, once):
    async with httpx.AsyncClient() as client:
        await client.post("https://bank.example/charges", json=event)  # bad: OG014


@gate.handler("desk.letters", key="{letter_id}")
async def on_letter(event, once):
    once.effect(bank, lambda key: None)  # bad: OG014


@gate.handler("desk.faxes", key="{fax_id}:{received_at}")  # bad: OG014
async def on_fax(event, once):
    await once.effect(bank, lambda key: None)


@gate.handler("desk.notes", key="{note_id}")
async def on_note(event, once):
    try:
        await once.effect(bank, lambda key: None)
    except ClaimLost:  # bad: OG014
        log.warning("lost")


@gate.handler("desk.memos", key="{memo_id}")
async def on_memo(event, once):  # good: OG014
    try:
        await asyncio.wait_for(once.effect(bank, lambda key: None), 5)
    except ClaimLost:
        log.warning("lost")
        raise
