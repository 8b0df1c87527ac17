"""A conformance suite for any store: every clause of the docstrings in `store.py` is a test.

For whoever writes a store, here or elsewhere. Subclass it in a test file and say how a store is made:

    class TestMyStore(StoreConformance):
        def make_store(self, clock):
            return MyStore(self.address, clock=clock)

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
from oncegate.testing.conformance.notices import NoticeConformance
from oncegate.testing.conformance.people import PeopleConformance
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
from oncegate.testing.conformance.units import UnitConformance
from oncegate.testing.conformance.withdrawals import WithdrawalConformance

__all__ = ["StoreConformance"]


class StoreConformance(
    ArrivalConformance,
    AlternativeConformance,
    RecordingConformance,
    FenceConformance,
    SettlementConformance,
    WithdrawalConformance,
    StepConformance,
    UnitConformance,
    TickConformance,
    LogConformance,
    CensusConformance,
    BrowsingConformance,
    PruningConformance,
    RegistryConformance,
    PositionConformance,
    PeopleConformance,
    TenureConformance,
    FeedConformance,
    TallyConformance,
    SeenConformance,
    ContentConformance,
    LedgerConformance,
    LaneConformance,
    LaneDeskConformance,
    ReplayConformance,
    AttemptConformance,
    ResourceConformance,
    TraceConformance,
    NoticeConformance,
    ApartConformance,
    BatchConformance,
):
    """Everything a store must do. Subclass it and override `make_store`."""
