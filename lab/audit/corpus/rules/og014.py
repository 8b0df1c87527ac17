"""oncegate itself."""

import logging
from datetime import datetime, timezone

import httpx
import requests
from aio_pika import IncomingMessage
from oncegate import Gate
from oncegate.errors import ClaimLost, NotApplied

log = logging.getLogger(__name__)
gate = Gate()
bank = gate.downstream("bank", honours_key="30d")
BANK = "https://bank.example/charges"


@gate.handler("direct", key="{order_id}")
def direct(event, once):
    requests.post(BANK, json=event)  # bad: OG014


@gate.handler("beside", key="{order_id}")
def beside(event, once):
    once.effect(bank, lambda: requests.post(BANK, json=event))
    requests.post("https://mail.example", json=event)  # bad: OG014


@gate.handler("called", key="{order_id}")
def called_too_early(event, once):
    once.effect(bank, requests.post(BANK, json=event))  # bad: OG014


@gate.handler("forgotten", key="{order_id}")
async def forgotten(event, once):
    once.effect(bank, charge, event)  # bad: OG014


@gate.handler("clock", key="{order_id}:{received_at}")  # bad: OG014
def clock(event, once):
    once.effect(bank, lambda: requests.post(BANK, json=event))


@gate.handler("day", key="{order_id}:" + datetime.now(timezone.utc).strftime("%Y%m%d"))  # bad: OG014
def day(event, once):
    once.effect(bank, lambda: requests.post(BANK, json=event))


@gate.handler("lost", key="{order_id}")
def lost(event, once):
    try:
        once.effect(bank, lambda: requests.post(BANK, json=event))
    except ClaimLost:  # bad: OG014
        log.info("lost the claim")


@gate.handler("broad", key="{order_id}")
def broad(event, once):
    try:
        once.effect(bank, lambda: requests.post(BANK, json=event))
    except Exception:  # bad: OG014
        log.exception("failed")


async def on_message(message: IncomingMessage) -> None:
    gate.admit("orders", message.body)  # bad: OG014
    await message.ack()


@gate.handler("committed", key="{order_id}")
async def uncommitted(event, once):
    await once.effect(bank, charge, event)
    once.commit(tx=event["connection"])  # bad: OG014


# ---- as it is meant ------------------------------------------------------------------------------


async def charge(event):
    async with httpx.AsyncClient() as client:
        return (await client.post(BANK, json=event)).json()


@gate.handler("orders", key="{order_id}")
async def orders(event, once):  # good: OG014
    return await once.effect(bank, charge, event)


@gate.handler("lambda", key="{order_id}")
def in_a_lambda(event, once):  # good: OG014
    return once.effect(bank, lambda: requests.post(BANK, json=event).json(), name="charge")


@gate.handler("reads", key="{order_id}")
def reads(event, once):  # good: OG014
    price = requests.get("https://prices.example").json()
    return once.effect(bank, requests.post, BANK, json={"price": price})


@gate.handler("opaque", key="{order_id}")
def opaque(event):  # good: OG014
    return requests.post(BANK, json=event).json()


@gate.once(key="{order_id}", name="shop.pay")
def pay(order_id, amount):  # good: OG014
    return requests.post(BANK, json={"order": order_id, "amount": amount}).json()


@gate.handler("let pass", key="{order_id}")
def let_pass(event, once):  # good: OG014
    try:
        once.effect(bank, lambda: requests.post(BANK, json=event))
    except ClaimLost:
        log.info("lost the claim")
        raise


@gate.handler("steps", key="{order_id}")
def steps(event, once):  # good: OG014
    once.step("pick", lambda: log.info("picked"))
    once.step("ship", lambda: requests.post(BANK, json=event))


@gate.handler("narrow", key="{order_id}")
def narrow(event, once):  # good: OG014
    try:
        once.effect(bank, lambda: requests.post(BANK, json=event))
    except requests.ConnectionError as error:
        raise NotApplied("not reached") from error


@gate.handler("business time", key="{order_id}:{due_date}")
def business_time(event, once):  # good: OG014
    once.effect(bank, lambda: requests.post(BANK, json=event))


async def on_awaited(message: IncomingMessage) -> None:
    await gate.admit("orders", message.body)
    await message.ack()
