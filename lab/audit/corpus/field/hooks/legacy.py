"""Flask, Django function views, aiohttp: the older half."""

import datetime
import json
import logging
import sqlite3
import time
import uuid
from urllib.request import Request as UrlRequest, urlopen

import boto3
import braintree
import requests
import urllib3
from aiohttp import ClientSession, web
from django.core.mail import EmailMultiAlternatives
from django.db import connection, transaction
from django.http import JsonResponse
from django.views.decorators.csrf import csrf_exempt
from flask import Flask, request, g
from requests.adapters import HTTPAdapter
from slack_sdk.webhook import WebhookClient
from urllib3.util.retry import Retry

app = Flask(__name__)
log = logging.getLogger("legacy")
gateway = braintree.BraintreeGateway(braintree.Configuration())
http = urllib3.PoolManager()
slack = WebhookClient("https://hooks.slack.com/x")
routes = web.RouteTableDef()


def get_db():
    if "db" not in g:
        g.db = sqlite3.connect("legacy.db")
    return g.db


def retrying_session():
    session = requests.Session()
    session.mount("https://", HTTPAdapter(max_retries=Retry(3, allowed_methods=False)))  # bad: OG010
    return session


def reading_session():
    session = requests.Session()
    session.mount("https://", HTTPAdapter(max_retries=Retry(3, allowed_methods=["GET", "HEAD"])))
    return session


@app.route("/ipn", methods=["POST"])
def ipn():
    form = request.form
    result = gateway.transaction.sale({"amount": form["amount"], "payment_method_nonce": form["nonce"]})  # bad: OG001
    return {"ok": result.is_success}


@app.route("/ipn/v2", methods=["POST"])
def ipn_v2():  # good: OG001, OG006
    form = request.form
    db = get_db()
    try:
        with db:
            db.execute("INSERT INTO ipn_seen (txn_id) VALUES (?)", (form["txn_id"],))
    except sqlite3.IntegrityError:
        app.logger.info("ipn %s again", form["txn_id"])
        return "", 200
    gateway.transaction.sale({"amount": form["amount"], "payment_method_nonce": form["nonce"]})
    return "", 200


@app.route("/ipn/v3", methods=["POST"])
def ipn_v3():
    form = request.form
    db = get_db()
    try:
        with db:
            db.execute("INSERT INTO ipn_seen (txn_id) VALUES (?)", (form["txn_id"],))
    except sqlite3.IntegrityError:
        return "", 200  # bad: OG006
    http.request("POST", "https://books.example/entries", fields=dict(form))
    return "", 200


@app.post("/alert")
def alert():
    slack.send(text=request.json["text"])  # bad: OG001
    return "", 204


@app.post("/alert/old")
def alert_old():
    data = json.dumps(request.json).encode()
    urlopen(UrlRequest("https://alerts.example", data=data, method="POST"))  # bad: OG001
    return "", 204


@app.get("/alert")
def alerts():
    return {"at": datetime.datetime.utcnow().isoformat()}


@app.post("/stamp")
def stamp():
    at = datetime.datetime.fromtimestamp(request.json["at"])  # bad: OG011
    get_db().execute("UPDATE stamps SET at = ? WHERE id = ?", (at, request.json["id"]))
    return "", 204


@app.post("/stamp/utc")
def stamp_utc():  # good: OG011
    at = datetime.datetime.fromtimestamp(request.json["at"], datetime.timezone.utc)
    get_db().execute("UPDATE stamps SET at = ? WHERE id = ?", (at.isoformat(), request.json["id"]))
    return "", 204


@csrf_exempt
def django_hook(request):
    body = json.loads(request.body)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO hook_ids (id) VALUES (%s) ON CONFLICT DO NOTHING", [body["id"]])
            if cursor.rowcount == 0:
                log.info("hook %s again", body["id"])
                return JsonResponse({"status": "duplicate"})
            cursor.execute("UPDATE stock SET n = n - %s WHERE sku = %s", [body["n"], body["sku"]])
        EmailMultiAlternatives("x", "y", "a@b.c", ["d@e.f"]).send()  # bad: OG013
    return JsonResponse({})


@csrf_exempt
def django_stock(request):  # good: OG001, OG004
    body = json.loads(request.body)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO hook_ids (id) VALUES (%s) ON CONFLICT DO NOTHING", [body["id"]])
        if cursor.rowcount:
            cursor.execute("UPDATE stock SET n = n - %s WHERE sku = %s", [body["n"], body["sku"]])
        else:
            log.info("hook %s again", body["id"])
    return JsonResponse({})


@csrf_exempt
def django_stock_apart(request):
    body = json.loads(request.body)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO hook_ids (id) VALUES (%s) ON CONFLICT DO NOTHING", [body["id"]])  # bad: OG004
        if not cursor.rowcount:
            log.info("hook %s again", body["id"])
            return JsonResponse({"status": "duplicate"})
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("UPDATE stock SET n = n - %s WHERE sku = %s", [body["n"], body["sku"]])
    return JsonResponse({})


@routes.post("/sensor")
async def sensor(request: web.Request) -> web.Response:
    body = await request.json()
    async with ClientSession() as session:
        for _ in range(5):
            async with session.post("https://alarm.example/raise", json=body) as reply:  # bad: OG001, OG010
                if reply.status == 200:
                    break
    return web.Response()


@routes.post("/sensor/key")
async def sensor_key(request: web.Request) -> web.Response:  # good: OG001, OG010
    body = await request.json()
    headers = {"Idempotency-Key": body["reading_id"], "Accept": "application/json"}
    async with ClientSession(headers={"X": "1"}) as session:
        for _ in range(5):
            async with session.post("https://alarm.example/raise", json=body, headers=headers) as reply:
                if reply.status == 200:
                    break
    return web.Response()


sns = boto3.client("sns", region_name="eu-central-1")


@app.post("/fan")
def fan():
    sns.publish(TopicArn="arn:x.fifo", Message=request.json["m"], MessageGroupId="g")  # bad: OG001, OG009
    return "", 204


@app.post("/instance")
def instance():
    boto3.client("ec2").run_instances(ImageId="ami", MinCount=1, MaxCount=1, ClientToken=str(uuid.uuid1()))  # bad: OG012
    return "", 202


@app.post("/instance/named")
def instance_named():  # good: OG001, OG009, OG012
    boto3.client("ec2").run_instances(ImageId="ami", MinCount=1, MaxCount=1, ClientToken=f"order-{request.json['order']}")
    time.sleep(0)
    return "", 202
