"""The sender's settings from the environment: which addresses may be called besides public https ones.

    ONCEGATE_ALLOW_HTTP=1                 endpoints without TLS
    ONCEGATE_ALLOW_LOOPBACK=1             this machine, for development and tests; implies http there
    ONCEGATE_ALLOW_NETWORKS=10.20.0.0/16  private networks with endpoints of one's own, by commas

They belong to the operator of the process. An endpoint cannot grant itself any of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from oncegate.errors import ConfigError
from oncegate.sender.addresses import AddressPolicy

ALLOW_HTTP: Final = "ONCEGATE_ALLOW_HTTP"
ALLOW_LOOPBACK: Final = "ONCEGATE_ALLOW_LOOPBACK"
ALLOW_NETWORKS: Final = "ONCEGATE_ALLOW_NETWORKS"
_SWITCH: Final = {"": False, "0": False, "false": False, "1": True, "true": True}


def policy_from_environment(environment: Mapping[str, str] = os.environ) -> AddressPolicy:
    """The policy that the process was started with."""
    loopback = _switch(environment, ALLOW_LOOPBACK)
    networks = [one.strip() for one in environment.get(ALLOW_NETWORKS, "").split(",") if one.strip()]
    return AddressPolicy.of(
        allow_http=_switch(environment, ALLOW_HTTP) or loopback,
        allow_loopback=loopback,
        allow_networks=networks,
    )


def _switch(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").strip().lower()
    if text not in _SWITCH:
        raise ConfigError(f"{name} is {text[:40]!r}; write 1 or 0")
    return _SWITCH[text]
