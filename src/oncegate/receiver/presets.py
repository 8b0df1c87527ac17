"""Receivers of providers that are known, and receivers as applications: the base of `Receiver`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from oncegate.gate.facade import GateOnStore
from oncegate.receiver.mounting import AsgiReceiver, Receives, WsgiReceiver, django_view
from oncegate.receiver.providers import ProviderName, provider_of


class ProvidersReceivers:
    """Ways to make and to mount a receiver.

    Each takes the gate, the name of the surface and the secrets, more than one while they are rotated.
    `sender` keeps the ids of two accounts apart. The event is `{"id", "type", "payload"}`.
    """

    @classmethod
    def _known(
        cls,
        name: ProviderName,
        gate: GateOnStore,
        surface: str,
        secrets: Sequence[str],
        *,
        sender: str | None,
        url: str | None = None,
        trust_id_header: bool = False,
    ) -> Self:
        provider = provider_of(name)
        provider.check_trust(trusts_header=trust_id_header)
        make = cast("Callable[..., Self]", cls)
        return make(
            gate,
            surface,
            scheme=provider.make_scheme(secrets, url),
            sender=name.value if sender is None else sender,
            ordered=False,
            provider=provider,
            trust_id_header=trust_id_header,
        )

    @classmethod
    def stripe(
        cls,
        gate: GateOnStore,
        surface: str = "stripe",
        *,
        secrets: Sequence[str],
        sender: str | None = None,
    ) -> Self:
        """Stripe: the id is the event's own (`evt_…`)."""
        return cls._known(ProviderName.STRIPE, gate, surface, secrets, sender=sender)

    @classmethod
    def github(
        cls,
        gate: GateOnStore,
        surface: str = "github",
        *,
        secrets: Sequence[str],
        sender: str | None = None,
        trust_id_header: bool = False,
    ) -> Self:
        """GitHub signs the body alone: the id is its hash, or `X-GitHub-Delivery` where that is trusted."""
        return cls._known(
            ProviderName.GITHUB, gate, surface, secrets, sender=sender, trust_id_header=trust_id_header
        )

    @classmethod
    def shopify(
        cls,
        gate: GateOnStore,
        surface: str = "shopify",
        *,
        secrets: Sequence[str],
        sender: str | None = None,
        trust_id_header: bool = False,
    ) -> Self:
        """Shopify signs the body alone: the id is topic and hash, or `X-Shopify-Webhook-Id` if trusted."""
        return cls._known(
            ProviderName.SHOPIFY, gate, surface, secrets, sender=sender, trust_id_header=trust_id_header
        )

    @classmethod
    def slack(
        cls, gate: GateOnStore, surface: str = "slack", *, secrets: Sequence[str], sender: str | None = None
    ) -> Self:
        """Slack's Events API: the id is `event_id`; `url_verification` is answered by itself."""
        return cls._known(ProviderName.SLACK, gate, surface, secrets, sender=sender)

    @classmethod
    def twilio(
        cls,
        gate: GateOnStore,
        surface: str = "twilio",
        *,
        secrets: Sequence[str],
        url: str,
        sender: str | None = None,
    ) -> Self:
        """Twilio: `secrets` are auth tokens, `url` is the address that Twilio calls; the body is a form."""
        return cls._known(ProviderName.TWILIO, gate, surface, secrets, sender=sender, url=url)

    @classmethod
    def standard(
        cls, gate: GateOnStore, surface: str, *, secrets: Sequence[str], sender: str | None = None
    ) -> Self:
        """Any provider that signs as Standard Webhooks says: the id is the signed `webhook-id`."""
        return cls._known(ProviderName.STANDARD, gate, surface, secrets, sender=sender)

    @classmethod
    def svix(
        cls, gate: GateOnStore, surface: str, *, secrets: Sequence[str], sender: str | None = None
    ) -> Self:
        """Any provider that sends through Svix: the id is the signed `svix-id`."""
        return cls._known(ProviderName.SVIX, gate, surface, secrets, sender=sender)

    def asgi(self) -> AsgiReceiver:
        """An ASGI application: `app.add_route("/stripe", receiver.asgi())` in Starlette and FastAPI."""
        return AsgiReceiver(cast("Receives", self))

    def wsgi(self) -> WsgiReceiver:
        """A WSGI application; in Flask: `app.add_url_rule("/stripe", view_func=receiver.wsgi, …)`."""
        return WsgiReceiver(cast("Receives", self))

    def django(self) -> Callable[..., Any]:
        """A view of Django: `path("stripe/", receiver.django())`."""
        return django_view(cast("Receives", self))
