"""Failures after an effect."""

import json
import logging

import boto3
import pika
import redis
import requests
from celery import shared_task
from confluent_kafka import Consumer
from fastapi import FastAPI
from fastapi.responses import JSONResponse

app = FastAPI()
log = logging.getLogger(__name__)
r = redis.Redis()
sqs = boto3.client("sqs")
BANK = "https://bank.example/charges"


@shared_task(acks_late=True)
def logged_and_done(order_id):
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return
    try:
        requests.post(BANK, json={"order": order_id})
    except Exception:  # bad: OG008
        log.exception("failed")


@shared_task(acks_late=True)
def passed(order_id):
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return
    try:
        requests.post(BANK, json={"order": order_id})
    except:  # bad: OG008
        pass


def on_order(ch, method, properties, body):
    order = json.loads(body)
    if not r.set(order["id"], 1, nx=True):
        log.info("repeat")
        ch.basic_ack(method.delivery_tag)
        return
    try:
        requests.post(BANK, json=order)
        ch.basic_ack(method.delivery_tag)
    except Exception:  # bad: OG008
        log.exception("failed")


def on_other(ch, method, properties, body):
    order = json.loads(body)
    if not r.set(order["id"], 1, nx=True):
        log.info("repeat")
        ch.basic_ack(method.delivery_tag)
        return
    try:
        requests.post(BANK, json=order)
    except Exception as error:  # bad: OG008
        log.error("failed: %s", error)
    ch.basic_ack(method.delivery_tag)


def lambda_handler(event, context):
    for record in event["Records"]:
        order = json.loads(record["body"])
        if not r.set(order["id"], 1, nx=True):
            log.info("repeat")
            continue
        try:
            requests.post(BANK, json=order)
        except Exception:  # bad: OG008
            log.exception("failed")
            continue


def confluent_loop():
    consumer = Consumer({"group.id": "g", "enable.auto.commit": False})
    while True:
        msg = consumer.poll(1.0)
        order = json.loads(msg.value())
        if not r.set(order["id"], 1, nx=True):
            log.info("repeat")
            continue
        try:
            requests.post(BANK, json=order)
            consumer.commit(msg)
        except Exception:  # bad: OG008
            log.exception("failed")


def on_repeat_without_ack(ch, method, properties, body):
    order = json.loads(body)
    if not r.set(order["id"], 1, nx=True):
        log.info("repeat")
        return  # bad: OG008
    requests.post(BANK, json=order)
    ch.basic_ack(method.delivery_tag)


def poll_queue(url):
    while True:
        for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
            order = json.loads(message["Body"])
            if not r.set(order["id"], 1, nx=True):
                log.info("repeat")
                continue  # bad: OG008
            requests.post(BANK, json=order)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@app.post("/hooks")
def answers_ok(event: dict):
    if not r.set(event["id"], 1, nx=True):
        return {"status": "duplicate"}
    try:
        requests.post(BANK, json=event)
    except Exception:  # bad: OG008
        log.exception("failed")
    return {"ok": True}


def setup():
    channel = pika.BlockingConnection().channel()
    channel.basic_consume("a", on_message_callback=on_order)
    channel.basic_consume("b", on_message_callback=on_other)


# ---- let pass, given back, recorded --------------------------------------------------------------


@shared_task(acks_late=True)
def raised_again(order_id):  # good: OG008
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return
    try:
        requests.post(BANK, json={"order": order_id})
    except Exception:
        log.exception("failed")
        raise


def on_given_back(ch, method, properties, body):  # good: OG008
    order = json.loads(body)
    if not r.set(order["id"], 1, nx=True):
        log.info("repeat")
        ch.basic_ack(method.delivery_tag)
        return
    try:
        requests.post(BANK, json=order)
        ch.basic_ack(method.delivery_tag)
    except Exception:
        log.exception("failed")
        ch.basic_nack(method.delivery_tag, requeue=True)


@shared_task(bind=True, acks_late=True)
def retried_by_celery(self, order_id):  # good: OG008
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return
    try:
        requests.post(BANK, json={"order": order_id})
    except Exception as error:
        raise self.retry(exc=error)


def sqs_comes_again(url):
    while True:
        for message in sqs.receive_message(QueueUrl=url).get("Messages", []):
            order = json.loads(message["Body"])
            if not r.set(order["id"], 1, nx=True):
                log.info("repeat")
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                continue
            try:
                requests.post(BANK, json=order)
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            except Exception:
                log.exception("failed, comes again")


def partial_failures(event, context):  # good: OG008
    failures = []
    for record in event["Records"]:
        order = json.loads(record["body"])
        if not r.set(order["id"], 1, nx=True):
            log.info("repeat")
            continue
        try:
            requests.post(BANK, json=order)
        except Exception:
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}


@app.post("/hooks/status")
def answers_error(event: dict):  # good: OG008
    if not r.set(event["id"], 1, nx=True):
        return {"status": "duplicate"}
    try:
        requests.post(BANK, json=event)
    except Exception:
        log.exception("failed")
        return JSONResponse({"error": "failed"}, status_code=500)
    return {"ok": True}


@shared_task(acks_late=True)
def narrow(order_id):  # good: OG008
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return
    try:
        requests.post(BANK, json={"order": order_id})
    except requests.HTTPError:
        log.exception("refused")


@shared_task(acks_late=True)
def before_the_effect(order_id, text):  # good: OG008
    try:
        amount = json.loads(text)["amount"]
    except Exception:
        log.exception("unreadable")
        return
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return
    requests.post(BANK, json={"order": order_id, "amount": amount})


@shared_task(acks_late=True)
def recorded_failure(cursor, order_id):  # good: OG008
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return
    try:
        requests.post(BANK, json={"order": order_id})
    except Exception:
        cursor.execute("INSERT INTO failed_orders (id) VALUES (%s)", (order_id,))
