"""Retries around calls."""

import logging
import time

import backoff
import httpx
import redis
import requests
import stamina
from celery import shared_task
from requests.adapters import HTTPAdapter
from tenacity import Retrying, retry, retry_if_exception_type, stop_after_attempt, wait_exponential
from urllib3.util import Retry

log = logging.getLogger(__name__)
r = redis.Redis()
BANK = "https://bank.example/charges"


def is_new(order_id):
    if not r.set(order_id, 1, nx=True):
        log.info("repeat")
        return False
    return True


@retry(stop=stop_after_attempt(3), wait=wait_exponential())
def post_with_tenacity(order):
    return requests.post(BANK, json=order)  # bad: OG010


@shared_task(acks_late=True)
def by_tenacity(order):
    if is_new(order["id"]):
        post_with_tenacity(order)


@backoff.on_exception(backoff.expo, requests.RequestException, max_tries=5)
def post_with_backoff(order):
    return requests.post(BANK, json=order)  # bad: OG010


@shared_task(acks_late=True)
def by_backoff(order):
    if is_new(order["id"]):
        post_with_backoff(order)


@stamina.retry(on=httpx.HTTPError, attempts=3)
def post_with_stamina(order):
    return httpx.post(BANK, json=order)  # bad: OG010


@shared_task(acks_late=True)
def by_stamina(order):
    if is_new(order["id"]):
        post_with_stamina(order)


@shared_task(acks_late=True)
def by_hand(order):
    if not is_new(order["id"]):
        return
    for attempt in range(3):
        try:
            requests.post(BANK, json=order)  # bad: OG010
            break
        except requests.RequestException:
            time.sleep(2**attempt)


@shared_task(acks_late=True)
def forever(order):
    if not is_new(order["id"]):
        return
    while True:
        try:
            answer = requests.post(BANK, json=order)  # bad: OG010
            return answer.text
        except requests.Timeout:
            log.warning("once more")


@shared_task(acks_late=True)
def by_retrying(order):
    if not is_new(order["id"]):
        return
    for attempt in Retrying(stop=stop_after_attempt(3)):
        with attempt:
            requests.post(BANK, json=order)  # bad: OG010


def session_with_retries():
    session = requests.Session()
    retries = Retry(total=3, status_forcelist=[502, 503], allowed_methods=["GET", "POST"])  # bad: OG010
    session.mount("https://", HTTPAdapter(max_retries=retries))
    return session


def session_for_all():
    session = requests.Session()
    session.mount("https://", HTTPAdapter(max_retries=Retry(total=3, allowed_methods=None)))  # bad: OG010
    return session


class Bank:
    @retry(reraise=True, stop=stop_after_attempt(5))
    async def charge(self, order):
        async with httpx.AsyncClient() as client:
            await client.post(BANK, json=order)  # bad: OG010


@shared_task(acks_late=True)
async def by_method(order):
    if is_new(order["id"]):
        await Bank().charge(order)


# ---- safe to repeat ------------------------------------------------------------------------------


@retry(stop=stop_after_attempt(3))
def read_with_tenacity(order):
    return requests.get(f"{BANK}/{order['id']}")


@shared_task(acks_late=True)
def reads(order):  # good: OG010
    return read_with_tenacity(order).text


@retry(stop=stop_after_attempt(3))
def post_with_key(order):
    return requests.post(BANK, json=order, headers={"Idempotency-Key": f"order-{order['id']}"})


@shared_task(acks_late=True)
def keyed(order):  # good: OG010
    post_with_key(order)


@retry(retry=retry_if_exception_type(httpx.ConnectError), stop=stop_after_attempt(3))
def post_before_sending(order):
    return httpx.post(BANK, json=order)


@shared_task(acks_late=True)
def connect_only(order):  # good: OG010
    if is_new(order["id"]):
        post_before_sending(order)


@shared_task(acks_late=True)
def connect_only_by_hand(order):  # good: OG010
    if not is_new(order["id"]):
        return
    for _ in range(3):
        try:
            httpx.post(BANK, json=order)
            break
        except httpx.ConnectTimeout:
            time.sleep(1)


def session_for_reads():
    session = requests.Session()
    session.mount("https://", HTTPAdapter(max_retries=Retry(total=3, status_forcelist=[502])))
    return session


@shared_task(acks_late=True)
def each_order(orders):  # good: OG010
    for number in range(len(orders)):
        order = orders[number]
        if is_new(order["id"]):
            requests.post(BANK, json=order)


@shared_task(acks_late=True)
def puts(order):  # good: OG010
    for _ in range(3):
        try:
            requests.put(f"{BANK}/{order['id']}", json=order)
            break
        except requests.RequestException:
            time.sleep(1)


@shared_task(acks_late=True)
def no_second_try(order):  # good: OG010
    if not is_new(order["id"]):
        return
    for _ in range(1):
        try:
            requests.post(BANK, json=order)
            break
        except requests.RequestException:
            raise


@shared_task(acks_late=True)
def waits_then_posts(order):  # good: OG010
    if not is_new(order["id"]):
        return
    while True:
        try:
            requests.get(f"{BANK}/health")
            break
        except requests.RequestException:
            time.sleep(1)
    requests.post(BANK, json=order)
