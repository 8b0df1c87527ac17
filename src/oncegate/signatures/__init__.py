"""Signatures on webhooks: making them, and checking those that come in.

Used by the sender, the receiver and the service. Knows no store, no clock and no socket.
"""

from __future__ import annotations

from oncegate.signatures.bearer import BearerToken
from oncegate.signatures.github import GithubSignature
from oncegate.signatures.keys import (
    Ed25519PublicKey,
    Ed25519SigningKey,
    HmacSecret,
    read_signing_key,
    read_verifying_key,
)
from oncegate.signatures.scheme import Authentic, Headers, LoweredHeaders, Scheme
from oncegate.signatures.shopify import ShopifySignature
from oncegate.signatures.signing import sign
from oncegate.signatures.slack import SlackSignature
from oncegate.signatures.standard import StandardWebhooks
from oncegate.signatures.stripe import StripeSignature
from oncegate.signatures.twilio import TwilioSignature

__all__ = [
    "Authentic",
    "BearerToken",
    "Ed25519PublicKey",
    "Ed25519SigningKey",
    "GithubSignature",
    "Headers",
    "HmacSecret",
    "LoweredHeaders",
    "Scheme",
    "ShopifySignature",
    "SlackSignature",
    "StandardWebhooks",
    "StripeSignature",
    "TwilioSignature",
    "read_signing_key",
    "read_verifying_key",
    "sign",
]
