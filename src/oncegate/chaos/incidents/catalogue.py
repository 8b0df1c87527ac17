"""All incidents by name, in the order in which they are told."""

from __future__ import annotations

from typing import Final

from oncegate.chaos.incidents.delayed_commit import DelayedCommit
from oncegate.chaos.incidents.deploy_kills import DeployKills
from oncegate.chaos.incidents.endpoint_down import EndpointDown
from oncegate.chaos.incidents.forgotten_keys import ForgottenKeys
from oncegate.chaos.incidents.homecare import ClockChange
from oncegate.chaos.incidents.incident import Incident
from oncegate.chaos.incidents.lost_keys import LostKeys
from oncegate.chaos.incidents.outages import Accepting, Flapping, HalfAMinute, HalfAnHour, LedgerDown
from oncegate.chaos.incidents.partition import Partition
from oncegate.chaos.incidents.retry_storm import RetryStorm
from oncegate.chaos.incidents.visibility_lapse import VisibilityLapse

# The Monday storm is the demo itself, with processes and a terminal of its own.
STORM: Final = "monday-storm"
STORM_TITLE: Final = (
    "87 deliveries, killed workers and failed writes: 39 containers, with and without the gate"
)

INCIDENTS: Final[dict[str, Incident]] = {
    incident.name: incident
    for incident in (
        ClockChange(),
        RetryStorm(),
        ForgottenKeys(),
        DelayedCommit(),
        VisibilityLapse(),
        LostKeys(),
        DeployKills(),
        Partition(),
        HalfAMinute(),
        HalfAnHour(),
        Flapping(),
        Accepting(),
        LedgerDown(),
        EndpointDown(),
    )
}
