"""Settings of all tests, and the one PostgreSQL server that most of them share in each test process.

Folders of tests are in memory where there is room: a process that is killed leaves behind what it wrote
either way, and tests of disks that fail make single calls fail.

Failed assertions of the conformance suite show their values. The thread that tells the ledger what a gate
has seen sleeps through every test: commits are counted, and made to fail, one by one. Tests of the thread
itself wake it. A sender that runs looks for new endpoints more often than every two seconds, which tests
would wait for.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncegate.gate.flows import settlement
from oncegate.gate.runtime import arrival_stats
from oncegate.sender import delivery
from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import TEST_URL_VARIABLE, GivenServer, PostgresServer
from oncegate.testing.spare_ledgers import SpareLedgers
from tests.support.compiled import compile_share
from tests.support.kafka_mock import MockKafka
from tests.support.loggers import loggers_as_they_were
from tests.support.properties import register_profiles
from tests.support.servers import DynamoDb, MiniStack, Nats, RabbitMq, SeaweedFs, Valkey, running

pytest.register_assert_rewrite("oncegate.testing.conformance", "lab.crash_matrix")
arrival_stats.FLUSH_SECONDS = 3600.0
delivery.LOOK_SECONDS = 0.1  # type: ignore[misc]

register_profiles()

MEMORY, MEMORY_FREE_MIN = Path("/dev/shm"), 2 * 2**30  # a run needs less than a tenth
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_FREE_MIN:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Tests start hundreds of Python processes, and without compiled files each would compile the package anew,
# which takes longer than what most of them do.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Three even on one or two cores, as tests wait a good part of their time. More than four want more memory
# than they save time: each has a PostgreSQL server, and one a browser.
WORKERS_MIN, WORKERS_MAX = 3, 4


OBEYS_WAITS = ("tests/simulation/", "tests/demo/", "tests/lab/")


@pytest.fixture(autouse=True)
def _retries_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests about other things bring a failed event again at once; those about waits are marked."""
    obeys = request.node.get_closest_marker("waits") is not None
    if not obeys and not request.node.nodeid.startswith(OBEYS_WAITS):
        monkeypatch.setattr(settlement, "retry_in_ms", lambda *_: 0)


@pytest.fixture(autouse=True)
def _whole_schemas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that damage a schema are marked; for others the comparison would be half of every opening."""
    if request.node.get_closest_marker("damage") is None:
        monkeypatch.setattr(PostgresStore, "_refuse_damage", lambda *_: None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Lets each test process compile its share before all of them read all files."""
    compile_share(session.config, Path(__file__).parent)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many processes `-n auto` is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores, WORKERS_MIN), WORKERS_MAX)


# They fork this process hundreds of times, and what a fork copies grows with every test that has run.
FORKING = ("test_crash_matrix.py", "test_decisions_under_faults.py", "test_crashes.py", "test_cells.py")


# Each of these starts in seconds, in every test process that uses it.
SLOW_FIXTURES = frozenset({"chromium", "dynamodb", "ministack", "rabbitmq", "seaweedfs"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs PostgreSQL or a slow server. Tests that fork most run first, the others in order."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "postgres" in fixtures:
            item.add_marker("postgres")
        if not SLOW_FIXTURES.isdisjoint(fixtures):
            item.add_marker("slow")
    items.sort(key=lambda item: item.path.name not in FORKING)


def pytest_collection_finish() -> None:
    """Lets no collection of garbage go through thousands of tests again and again, here or in a fork."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def kept_loggers() -> Iterator[None]:
    """No test leaves a logger behind that writes to its own stream."""
    with loggers_as_they_were():
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | GivenServer]:
    """One PostgreSQL server a test process. Who crashes it or changes its settings starts another.

    Without autovacuum: readers of the log wait for any transaction of the server, also for that one.
    """
    given = os.environ.get(TEST_URL_VARIABLE)
    if given:
        yield GivenServer(given)
        return
    with PostgresServer({"autovacuum": "off"}, in_memory=True) as server:
        yield server


@pytest.fixture(scope="session")
def spare_ledgers(postgres: PostgresServer | GivenServer) -> SpareLedgers:
    """Empty ledgers on that server, used again and again."""
    return SpareLedgers(postgres)


@pytest.fixture
def ledger_url(spare_ledgers: SpareLedgers) -> Iterator[str]:
    """The address of an empty PostgreSQL ledger."""
    url = spare_ledgers.take()
    yield url
    spare_ledgers.give_back(url)


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    """A mock Kafka cluster of one broker, for one test: a few milliseconds."""
    with MockKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """One Valkey server a test process; tests flush it or use keys of their own."""
    with running(Valkey) as server:
        yield server


@pytest.fixture(scope="session")
def nats() -> Iterator[Nats]:
    """One NATS server a test process; tests use streams of their own."""
    with running(Nats) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMq]:
    """One RabbitMQ server a test process; tests use queues of their own."""
    with running(RabbitMq) as server:
        yield server


@pytest.fixture(scope="session")
def ministack() -> Iterator[MiniStack]:
    """One ministack a test process; tests use queues and tables of their own."""
    with running(MiniStack) as server:
        yield server


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[DynamoDb]:
    """One DynamoDB Local a test process; tests use tables of their own."""
    with running(DynamoDb) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFs]:
    """One SeaweedFS a test process; tests use buckets of their own."""
    with running(SeaweedFs) as server:
        yield server
