"""Reserved, read-only or recognised downstream: no findings."""

import json
import logging

import boto3
import dramatiq
import httpx
import psycopg
import redis
import requests
import stripe
from aio_pika import IncomingMessage
from botocore.exceptions import ClientError
from celery import shared_task
from fastapi import FastAPI
from oncegate import Gate
from psycopg.errors import UniqueViolation

app = FastAPI()
log = logging.getLogger(__name__)
r = redis.Redis()
gate = Gate()
table = boto3.resource("dynamodb").Table("processed")


@shared_task(acks_late=True)
def charge_reserved(order_id):  # good: OG001
    if not r.set(f"charge:{order_id}", "1", nx=True):
        log.info("repeat of %s", order_id)
        return
    requests.post("https://bank.example/charges", json={"order": order_id})


@dramatiq.actor
def charge_unique(order_id):  # good: OG001
    with psycopg.connect("dbname=shop", autocommit=True) as conn:
        try:
            conn.execute("INSERT INTO processed_orders (order_id) VALUES (%s)", (order_id,))
            conn.commit()
        except UniqueViolation:
            log.info("repeat of %s", order_id)
            return
        requests.post("https://bank.example/charges", json={"order": order_id})


def lambda_handler(event, context):  # good: OG001
    for record in event["Records"]:
        order = json.loads(record["body"])
        try:
            table.put_item(Item={"pk": order["order_id"]}, ConditionExpression="attribute_not_exists(pk)")
        except ClientError:
            log.info("repeat of %s", order["order_id"])
            continue
        httpx.post("https://carrier.example/shipments", json=order)


@app.post("/payments")
def pay(order: dict):  # good: OG001
    intent = stripe.PaymentIntent.create(amount=order["amount"], currency="eur", idempotency_key=f"order-{order['id']}")
    return {"intent": intent.id}


def on_price_request(ch, method, properties, body):  # good: OG001
    answer = requests.get("https://prices.example/today", timeout=5)
    log.info("price %s", answer.text)
    ch.basic_ack(delivery_tag=method.delivery_tag)


async def on_profile(message: IncomingMessage) -> None:
    async with message.process():
        profile = json.loads(message.body)
        async with httpx.AsyncClient() as client:
            await client.put(f"https://crm.example/profiles/{profile['id']}", json=profile)


@shared_task(acks_late=True)
def refresh_token(account):  # good: OG001
    answer = requests.post("https://login.example/oauth/token", data={"account": account})
    r.set(f"token:{account}", answer.text)


@gate.handler("orders", key="{order_id}")
def book(event, once):  # good: OG001
    bank = gate.downstream("bank", honours_key="30d")
    once.effect(bank, lambda: requests.post("https://bank.example/charges", json=event))


@gate.once(key="{order_id}")
def charge_once(order_id, amount):
    return requests.post("https://bank.example/charges", json={"id": order_id, "amount": amount}).json()


@shared_task(acks_late=True)
def charge_by_gate(order_id, amount):  # good: OG001
    charge_once(order_id, amount)


@shared_task(acks_late=True)
def claim_row(cursor, order_id):  # good: OG001
    cursor.execute("UPDATE orders SET status = 'charging' WHERE id = %s AND status = 'new'", (order_id,))
    if cursor.rowcount == 0:
        log.info("order %s is being charged already", order_id)
        return
    requests.post("https://bank.example/charges", json={"order": order_id})


@dramatiq.actor
def insert_ignored(cursor, order_id):  # good: OG001
    cursor.execute("INSERT INTO claims (order_id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING order_id", (order_id,))
    if cursor.fetchone() is None:
        log.info("repeat of %s", order_id)
        return
    requests.post("https://bank.example/charges", json={"order": order_id})


@shared_task(acks_late=True)
def set_absolute(cursor, account, balance):  # good: OG001
    cursor.execute("UPDATE accounts SET balance = %s WHERE id = %s", (balance, account))
