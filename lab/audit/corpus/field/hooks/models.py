"""SQLModel tables."""

from datetime import datetime
from typing import Optional

from sqlmodel import Field, SQLModel


class Invoice(SQLModel, table=True):
    id: Optional[int] = Field(default=None, primary_key=True)
    number: str = Field(unique=True)
    state: str = "open"
    paid_cents: int = 0


class InboundHook(SQLModel, table=True):
    provider_event_id: str = Field(primary_key=True)
    at: datetime
