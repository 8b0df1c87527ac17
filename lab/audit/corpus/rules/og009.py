"""Keys that are passed on, and keys that are not."""

import logging
import os

import boto3
import redis
import requests
import stripe
from celery import shared_task
from mollie.api.client import Client as Mollie
from square import Square

log = logging.getLogger(__name__)
r = redis.Redis()
square = Square(token="x")
mollie = Mollie()
client = stripe.StripeClient("sk")
sqs = boto3.client("sqs")
ec2 = boto3.client("ec2")


def reserved(order_id):
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return False
    return True


@shared_task(acks_late=True)
def stripe_intent(order_id, amount):
    if not reserved(order_id):
        return
    stripe.PaymentIntent.create(amount=amount, currency="eur")  # bad: OG009


@shared_task(acks_late=True)
def stripe_refund(order_id, charge):
    if not reserved(order_id):
        return
    stripe.Refund.create(charge=charge, metadata={"order": order_id})  # bad: OG009


@shared_task(acks_late=True)
def stripe_client(order_id, amount):
    if not reserved(order_id):
        return
    client.payment_intents.create(params={"amount": amount, "currency": "eur"})  # bad: OG009


@shared_task(acks_late=True)
def stripe_by_hand(order_id, amount):
    if not reserved(order_id):
        return
    requests.post("https://api.stripe.com/v1/charges", data={"amount": amount}, auth=("sk", ""))  # bad: OG009


@shared_task(acks_late=True)
def square_payment(order_id, amount):
    if not reserved(order_id):
        return
    square.payments.create(source_id="x", amount_money={"amount": amount})  # bad: OG009


@shared_task(acks_late=True)
def mollie_payment(order_id, amount):
    if not reserved(order_id):
        return
    mollie.payments.create({"amount": amount, "description": order_id})  # bad: OG009


@shared_task(acks_late=True)
def fifo_without_id(order_id):
    if not reserved(order_id):
        return
    sqs.send_message(QueueUrl="https://sqs/orders.fifo", MessageBody=order_id, MessageGroupId="orders")  # bad: OG009


@shared_task(acks_late=True)
def paypal_by_hand(order_id):
    if not reserved(order_id):
        return
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    requests.post("https://api-m.paypal.com/v2/checkout/orders", json={"id": order_id}, headers=headers)  # bad: OG009


@shared_task(acks_late=True)
def instance(order_id):
    if not reserved(order_id):
        return
    ec2.run_instances(ImageId="ami", MinCount=1, MaxCount=1)  # bad: OG009


# ---- passed on, or not taken ---------------------------------------------------------------------


@shared_task(acks_late=True)
def stripe_keyed(order_id, amount):  # good: OG009
    if not reserved(order_id):
        return
    stripe.PaymentIntent.create(amount=amount, currency="eur", idempotency_key=f"order-{order_id}")


@shared_task(acks_late=True)
def stripe_options(order_id, amount):  # good: OG009
    if not reserved(order_id):
        return
    client.payment_intents.create(params={"amount": amount}, options={"idempotency_key": f"order-{order_id}"})


@shared_task(acks_late=True)
def stripe_header(order_id, amount):  # good: OG009
    if not reserved(order_id):
        return
    headers = {"Idempotency-Key": f"order-{order_id}"}
    requests.post("https://api.stripe.com/v1/charges", data={"amount": amount}, headers=headers)


@shared_task(acks_late=True)
def square_keyed(order_id, amount):  # good: OG009
    if not reserved(order_id):
        return
    square.payments.create(source_id="x", idempotency_key=order_id, amount_money={"amount": amount})


@shared_task(acks_late=True)
def fifo_with_id(order_id):  # good: OG009
    if not reserved(order_id):
        return
    sqs.send_message(
        QueueUrl="https://sqs/orders.fifo", MessageBody="x", MessageGroupId="orders", MessageDeduplicationId=order_id
    )


@shared_task(acks_late=True)
def no_such_key(order_id):  # good: OG009
    if not reserved(order_id):
        return
    requests.post("https://hooks.example/x", json={"order": order_id})


@shared_task(acks_late=True)
def reads_only(order_id):  # good: OG009
    intent = stripe.PaymentIntent.retrieve(order_id)
    log.info("state %s", intent.status)


@shared_task(acks_late=True)
def paypal_keyed(order_id):  # good: OG009
    if not reserved(order_id):
        return
    headers = {"Authorization": "Bearer x"}
    headers["PayPal-Request-Id"] = f"order-{order_id}"
    requests.post("https://api-m.paypal.com/v2/checkout/orders", json={"id": order_id}, headers=headers)


@shared_task(acks_late=True)
def unpacked(order_id, options):  # good: OG009
    if not reserved(order_id):
        return
    stripe.Charge.create(amount=1, **options)
