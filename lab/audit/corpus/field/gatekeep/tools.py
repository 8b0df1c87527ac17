"""MCP servers and oncegate handlers."""

from __future__ import annotations

import logging
import os
import smtplib
import time
import uuid
from email.message import EmailMessage

import httpx
import mcp.types as types
import requests
import resend
from fastmcp import FastMCP
from mcp.server.lowlevel import Server

from oncegate import ClaimLost, Gate, Once

mcp = FastMCP(name="Travel")
server = Server("travel")
log = logging.getLogger("gatekeep")
gate = Gate.open(os.environ.get("LEDGER", "sqlite:///x.db"))
airline = gate.downstream("airline")


@mcp.tool
def book_flight(passenger: str, flight: str) -> dict:
    """Books a seat."""
    return requests.post("https://airline.example/bookings", json={"p": passenger, "f": flight}).json()  # bad: OG001


@mcp.tool(annotations={"idempotentHint": True})
def book_flight_with_key(booking_id: str, passenger: str, flight: str) -> dict:  # good: OG001
    return requests.post(
        "https://airline.example/bookings", json={"p": passenger, "f": flight}, headers={"Idempotency-Key": booking_id}
    ).json()


@mcp.tool
def flights(origin: str, to: str) -> list[dict]:  # good: OG001
    return requests.get("https://airline.example/flights", params={"o": origin, "t": to}).json()


@server.call_tool()
async def call_tool(name: str, arguments: dict) -> list[types.TextContent]:
    if name == "mail":
        message = EmailMessage()
        message["To"] = arguments["to"]
        with smtplib.SMTP("localhost") as smtp:
            smtp.send_message(message)  # bad: OG001
    return [types.TextContent(type="text", text="sent")]


@mcp.tool
def send_itinerary(booking_id: str, to: str) -> str:
    params: resend.Emails.SendParams = {"from": "a@b.c", "to": [to], "subject": "x", "html": "y"}
    return resend.Emails.send(params)["id"]  # bad: OG001, OG009


@gate.handler("travel.bookings", key="{booking_id}")
async def on_booking(event: dict, once: Once) -> dict:  # good: OG014
    async def call(key: str) -> dict:
        async with httpx.AsyncClient() as client:
            answer = await client.post("https://airline.example/bookings", json=event, headers={"Idempotency-Key": key})
            return answer.json()

    return await once.effect(airline, call)


@gate.handler("travel.cancellations", key="{cancel_id}")
def on_cancel(event: dict, once: Once) -> None:
    requests.post("https://airline.example/cancel", json=event)  # bad: OG014
    once.effect(airline, lambda key: None)


@gate.handler("travel.seats", key="{seat_id}")
async def on_seat(event: dict, once: Once) -> None:
    once.effect(airline, lambda key: None)  # bad: OG014
    log.info("seat")


@gate.handler("travel.bags", key="{bag_id}")
async def on_bag(event: dict, once: Once) -> None:
    try:
        await once.effect(airline, lambda key: None)
    except ClaimLost:  # bad: OG014
        return


@gate.handler("travel.meals", key=f"{time.time()}:{{meal_id}}")  # bad: OG014
async def on_meal(event: dict, once: Once) -> None:
    await once.effect(airline, lambda key: None)


@gate.handler("travel.miles", key="{miles_id}")
async def on_miles(event: dict) -> None:  # good: OG014
    async with httpx.AsyncClient() as client:
        await client.post("https://airline.example/miles", json=event)


@gate.handler("travel.notes", key="{note_id}")
async def on_note(event: dict, once: Once) -> None:  # good: OG014
    trace = uuid.uuid4().hex
    log.info("note %s", trace)
    pending = once.effect(airline, lambda key: None)
    await pending
