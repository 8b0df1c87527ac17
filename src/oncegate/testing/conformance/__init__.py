"""A conformance suite for any store: every clause of the docstrings in `oncegate.store` is a test.

For authors of stores, here or elsewhere. Subclass it in a test file and say how a store is made:

    class TestMyStore(StoreConformance):
        def make_store(self, clock):
            return MyStore(self.address, clock=clock)

`StoreConformance` is the whole contract. A store that declares fewer facets takes the class of each facet
it has: `ClaimsConformance`, `OpenEntriesConformance`, `LanesConformance`, `FeedConformance`,
`ReviewConformance`, `StatsConformance`. `InteractiveConformance` is for stores whose units are
transactions of many calls, `NumberedFenceConformance` for those that use an entry's number as its first
fence. A test about log records ends as skipped where there is no audit trail.

Within one test every call of `make_store` must name the same ledger, and the next test must find a new
and empty one (a pytest fixture with `autouse=True` is the place to make its address). The suite runs
under pytest, which it does not import. Business writes use a table of one column, made by
`make_business_table`; override it and the `*_sql` statements where the store speaks another dialect.
"""

from oncegate.testing.conformance.alternatives import AlternativeConformance
from oncegate.testing.conformance.apart import ApartConformance
from oncegate.testing.conformance.arrivals import ArrivalConformance
from oncegate.testing.conformance.attempts import AttemptConformance
from oncegate.testing.conformance.batches import BatchConformance
from oncegate.testing.conformance.browsing import BrowsingConformance
from oncegate.testing.conformance.censuses import CensusConformance
from oncegate.testing.conformance.contents import ContentConformance
from oncegate.testing.conformance.feeds import FeedConformance
from oncegate.testing.conformance.fences import FenceConformance
from oncegate.testing.conformance.lane_desks import LaneDeskConformance
from oncegate.testing.conformance.lanes import LaneConformance
from oncegate.testing.conformance.ledger import LedgerConformance
from oncegate.testing.conformance.logs import LogConformance
from oncegate.testing.conformance.mutations import MutationConformance
from oncegate.testing.conformance.notices import NoticeConformance
from oncegate.testing.conformance.open_entries import OpenEntryConformance
from oncegate.testing.conformance.people import FailedEntryConformance, PeopleConformance
from oncegate.testing.conformance.positions import PositionConformance
from oncegate.testing.conformance.pruning import PruningConformance
from oncegate.testing.conformance.recordings import RecordingConformance
from oncegate.testing.conformance.registries import RegistryConformance
from oncegate.testing.conformance.replays import ReplayConformance
from oncegate.testing.conformance.resources import ResourceConformance
from oncegate.testing.conformance.seen import SeenConformance
from oncegate.testing.conformance.settlements import SettlementConformance
from oncegate.testing.conformance.steps import StepConformance
from oncegate.testing.conformance.tallies import TallyConformance
from oncegate.testing.conformance.tenures import TenureConformance
from oncegate.testing.conformance.ticks import TickConformance
from oncegate.testing.conformance.traces import TraceConformance
from oncegate.testing.conformance.traits import InteractiveConformance, NumberedFenceConformance
from oncegate.testing.conformance.units import UnitConformance
from oncegate.testing.conformance.withdrawals import WithdrawalConformance

__all__ = [
    "ClaimsConformance",
    "FeedConformance",
    "InteractiveConformance",
    "LanesConformance",
    "NumberedFenceConformance",
    "OpenEntriesConformance",
    "ReviewConformance",
    "StatsConformance",
    "StoreConformance",
]


class ClaimsConformance(
    ArrivalConformance,
    RecordingConformance,
    FenceConformance,
    SettlementConformance,
    WithdrawalConformance,
    StepConformance,
    UnitConformance,
    TickConformance,
    LedgerConformance,
    BatchConformance,
):
    """`Facet.CLAIMS`: what every store must do, with interactive units or with units per call."""


class LanesConformance(
    LaneConformance, LaneDeskConformance, ReplayConformance, AttemptConformance, PositionConformance
):
    """`Facet.LANES`."""


class OpenEntriesConformance(OpenEntryConformance, PeopleConformance):
    """`Facet.OPEN_ENTRIES`."""


class ReviewConformance(
    OpenEntriesConformance,
    FailedEntryConformance,
    LogConformance,
    CensusConformance,
    BrowsingConformance,
    PruningConformance,
    RegistryConformance,
    TenureConformance,
    ContentConformance,
    ResourceConformance,
    MutationConformance,
    AlternativeConformance,
):
    """`Facet.REVIEW`."""


class StatsConformance(TallyConformance, SeenConformance, TraceConformance, NoticeConformance):
    """`Facet.STATS`."""


class StoreConformance(
    ClaimsConformance,
    LanesConformance,
    FeedConformance,
    ReviewConformance,
    StatsConformance,
    InteractiveConformance,
    NumberedFenceConformance,
    ApartConformance,
):
    """Everything a store can do. Subclass it and override `make_store`."""
