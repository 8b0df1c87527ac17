import sqlite3

import aiohttp
from twilio.rest import Client


class Crm:
    def __init__(self, url: str) -> None:
        self.url = url

    async def _send(self, path: str, body: dict) -> dict:
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{self.url}{path}", json=body) as answer:
                return await answer.json()

    async def create_contact(self, email: str) -> dict:
        return await self._send("/contacts", {"email": email})

    async def create_contact_quietly(self, email: str) -> dict:
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{self.url}/contacts", json={"email": email}) as answer:
                return await answer.json()


class Telephony:
    class AlreadyKnown(Exception):
        pass

    def __init__(self) -> None:
        self._twilio = Client()
        self._db = sqlite3.connect("calls.db")

    def remember(self, lead_id: str) -> None:
        try:
            with self._db:
                self._db.execute("INSERT INTO calls (lead_id) VALUES (?)", (lead_id,))
        except sqlite3.IntegrityError as error:
            raise self.AlreadyKnown(lead_id) from error

    def dial(self, number: str) -> None:
        self._twilio.calls.create(to=number, from_="+1555", url="https://example.test/voice.xml")

    def dial_quietly(self, number: str) -> None:
        self._twilio.calls.create(to=number, from_="+1555", url="https://example.test/voice.xml")
