"""All incidents by name, in the order in which they are told."""

from __future__ import annotations

from typing import Final

from lab.incidents.delayed_commit import DelayedCommit
from lab.incidents.deploy_kills import DeployKills
from lab.incidents.doubled_routes import DoubledRoutes
from lab.incidents.endpoint_down import EndpointDown
from lab.incidents.forgotten_keys import ForgottenKeys
from lab.incidents.homecare import ClockChange
from lab.incidents.incident import Incident
from lab.incidents.lost_keys import LostKeys
from lab.incidents.outages import Accepting, Flapping, HalfAMinute, HalfAnHour, LedgerDown
from lab.incidents.partition import Partition
from lab.incidents.retry_storm import RetryStorm
from lab.incidents.visibility_lapse import VisibilityLapse

# The Monday storm is the demo itself, with processes and a terminal of its own.
STORM: Final = "monday-storm"
STORM_TITLE: Final = (
    "87 deliveries, killed workers and failed writes: 39 containers, with and without the gate"
)

INCIDENTS: Final[dict[str, Incident]] = {
    incident.name: incident
    for incident in (
        ClockChange(),
        DoubledRoutes(),
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
