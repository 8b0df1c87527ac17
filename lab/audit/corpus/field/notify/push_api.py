"""Flask and aiohttp endpoints."""

import functools
import hmac
import logging
import os
import time
import uuid

import requests
from aiohttp import ClientSession, web
from flask import Blueprint, abort, current_app, jsonify, request
from flask.views import MethodView
from psycopg2.errors import UniqueViolation
from psycopg2.pool import ThreadedConnectionPool

bp = Blueprint("push", __name__)
pool = ThreadedConnectionPool(1, 10, os.environ["DSN"])
logger = logging.getLogger(__name__)
PUSH = "https://push.example/v1/messages"


def signed(view):
    @functools.wraps(view)
    def inner(*args, **kwargs):
        given = request.headers.get("X-Signature", "")
        if not hmac.compare_digest(given, os.environ["SECRET"]):
            abort(401)
        return view(*args, **kwargs)

    return inner


@bp.route("/hooks/orders", methods=["POST"])
@signed
def order_hook():
    event = request.get_json()
    requests.post(PUSH, json={"to": event["customer"], "text": "Thank you"}, timeout=5)  # bad: OG001
    return "", 204


@bp.route("/hooks/invoices", methods=["POST"])
@signed
def invoice_hook():  # good: OG001, OG006
    event = request.get_json()
    conn = pool.getconn()
    try:
        with conn, conn.cursor() as cur:
            cur.execute("INSERT INTO inbox (event_id, body) VALUES (%s, %s)", (event["id"], request.data))
    except UniqueViolation:
        current_app.logger.info("event %s is in the inbox already", event["id"])
        return jsonify(status="known"), 200
    finally:
        pool.putconn(conn)
    requests.post(PUSH, json={"to": event["customer"], "text": "Invoice"}, timeout=5)
    return "", 204


class DeviceView(MethodView):
    decorators = [signed]

    def get(self, device):
        return jsonify(requests.get(f"{PUSH}/{device}").json())

    def post(self, device):
        body = request.get_json()
        answer = requests.post(  # bad: OG012
            PUSH, json={"device": device, **body}, headers={"Idempotency-Key": f"{device}-{uuid.uuid4()}"}, timeout=5
        )
        return jsonify(answer.json()), answer.status_code


class KeyedDeviceView(MethodView):
    def post(self, device):  # good: OG001, OG012
        body = request.get_json()
        key = request.headers.get("Idempotency-Key") or abort(400)
        answer = requests.post(PUSH, json={"device": device, **body}, headers={"Idempotency-Key": key}, timeout=5)
        return jsonify(answer.json()), answer.status_code


async def push(request: web.Request) -> web.Response:
    body = await request.json()
    session: ClientSession = request.app["session"]
    for attempt in range(1, 4):
        try:
            async with session.post(PUSH, json=body) as answer:  # bad: OG001, OG010
                if answer.status < 500:
                    return web.json_response(await answer.json())
        except TimeoutError:
            logger.warning("attempt %s failed", attempt)
        time.sleep(attempt)
    return web.json_response({"error": "unavailable"}, status=503)


async def push_keyed(request: web.Request) -> web.Response:  # good: OG001, OG010
    body = await request.json()
    session: ClientSession = request.app["session"]
    headers = {"Idempotency-Key": body["push_id"]}
    for attempt in range(1, 4):
        try:
            async with session.post(PUSH, json=body, headers=headers) as answer:
                if answer.status < 500:
                    return web.json_response(await answer.json())
        except TimeoutError:
            logger.warning("attempt %s failed", attempt)
    return web.json_response({"error": "unavailable"}, status=503)


async def forget(request: web.Request) -> web.Response:
    async with request.app["session"].delete(f"{PUSH}/{request.match_info['id']}") as answer:
        return web.Response(status=answer.status)


def make_app() -> web.Application:
    app = web.Application()
    app.router.add_post("/push", push)
    app.router.add_post("/push/keyed", push_keyed)
    app.add_routes([web.delete("/push/{id}", forget)])
    return app


bp.add_url_rule("/devices/<device>", view_func=DeviceView.as_view("device"))
