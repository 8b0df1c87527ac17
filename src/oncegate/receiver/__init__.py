"""Receiving webhooks: checked, applied once, and in order where that is asked for."""

from __future__ import annotations

from oncegate.receiver.answers import Answer
from oncegate.receiver.lanes import Gap
from oncegate.receiver.receiver import Receiver

__all__ = ["Answer", "Gap", "Receiver"]
