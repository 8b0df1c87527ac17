"""The client of one table, shared by the threads of a process: calls, limits, retries.

The SDK itself sends every request once. Sending again is decided here: reads may be repeated, writes only
after an answer that says that nothing was changed (throttling). Must never repeat a write whose answer was
lost. A process that was forked makes a client of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import lru_cache
from random import Random
from typing import Any, Final, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError

from oncegate.clock import Clock
from oncegate.errors import StoreError, StoreUnavailable
from oncegate.stores.dynamodb.address import TableAddress
from oncegate.stores.dynamodb.failures import Throttled, translated

CONNECT_SECONDS: Final = 3
READ_SECONDS: Final = 10  # below the wait of the group commit
CONNECTIONS_MAX: Final = 32
THROTTLED_SECONDS_MAX: Final = 5.0  # of waiting in all, for one request; then the caller is refused
_FIRST_WAIT_SECONDS: Final = 0.05
_WAIT_SECONDS_MAX: Final = 1.0
_READS_MAX: Final = 3
_SIDE_BY_SIDE_MAX: Final = 8  # requests of one batch at once

A = TypeVar("A")
B = TypeVar("B")
Answer = dict[str, Any]
Watcher = Callable[[str, Answer], None]  # sees every operation and its answer


_SESSIONS_LOCK: Final = threading.Lock()


@lru_cache(maxsize=4)
def _session(pid: int, profile: str | None) -> Any:
    """The SDK's session of a process: it reads the service's description once."""
    return boto3.session.Session(profile_name=profile)


class TableClient:
    """One table's client."""

    def __init__(self, address: TableAddress, clock: Clock, watch: Watcher | None = None) -> None:
        self.address = address
        self.table = address.table
        self.clock = clock
        self._watch = watch
        self._random = Random()
        self._lock = threading.Lock()
        self._client: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._pid = 0

    @property
    def place(self) -> str:
        """How messages name the table."""
        return f"DynamoDB table {self.table}" + (f" in {self.region}" if self.region else "")

    @property
    def region(self) -> str:
        """The region that requests go to; empty before the first."""
        return "" if self._client is None else str(self._client.meta.region_name)

    def client(self) -> Any:
        """The SDK's client of this process."""
        if self._client is None or self._pid != os.getpid():
            with self._lock:
                if self._client is None or self._pid != os.getpid():
                    self._threads = None  # a fork has copied them without their threads
                    self._client, self._pid = self._made(), os.getpid()
        return self._client

    def side_by_side(self, work: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """Does the same with several items at once; `work` must not raise."""
        if len(items) < 2:
            return [work(item) for item in items]
        self.client()
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_SIDE_BY_SIDE_MAX, "oncegate-dynamodb")
            threads = self._threads
        return list(threads.map(work, items))

    def close(self) -> None:
        """Gives connections and threads back; a later call makes others."""
        with self._lock:
            client, threads, self._client, self._threads = self._client, self._threads, None, None
        if threads is not None and self._pid == os.getpid():
            threads.shutdown(wait=False)
        if client is not None and self._pid == os.getpid():
            client.close()

    def _made(self) -> Any:
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS_MAX,
            retries={"total_max_attempts": 1},
            user_agent_extra="oncegate",
        )
        address = self.address
        try:
            with _SESSIONS_LOCK:  # a session makes one client at a time
                session = _session(os.getpid(), address.profile)
                return session.client(
                    "dynamodb", region_name=address.region, endpoint_url=address.endpoint, config=config
                )
        except NoRegionError as error:
            raise StoreUnavailable(
                f"{self.place}: no region. Give it in the address,"
                f" dynamodb://{address.table}?region=eu-central-1, or as AWS_REGION"
            ) from error
        except (BotoCoreError, ValueError) as error:
            raise StoreUnavailable(f"{self.place}: {' '.join(str(error).split())[:200]}") from error

    def read(self, operation: str, **arguments: Any) -> Answer:
        """Calls what changes nothing; repeated a few times where the answer was lost."""
        for left in reversed(range(_READS_MAX)):
            try:
                return self._patiently(operation, arguments, is_write=False)
            except Throttled:
                raise
            except StoreUnavailable as error:
                if left == 0 or isinstance(error.__cause__, ClientError):
                    raise
        raise AssertionError("unreachable")

    def write(self, operation: str, **arguments: Any) -> Answer:
        """Calls what changes something: once, but for answers that say that nothing was changed."""
        return self._patiently(operation, arguments, is_write=True)

    def _patiently(self, operation: str, arguments: dict[str, Any], *, is_write: bool) -> Answer:
        waits = self.waits()
        while True:
            try:
                return self._call(operation, arguments, is_write=is_write)
            except Throttled as error:
                if not waits():
                    raise error

    def waits(self) -> Callable[[], bool]:
        """Waits longer each time it is called; False, at once, when it has waited long enough."""
        waited, longest = 0.0, _FIRST_WAIT_SECONDS

        def wait() -> bool:
            nonlocal waited, longest
            if waited >= THROTTLED_SECONDS_MAX:
                return False
            seconds = longest * self._random.uniform(0.5, 1.0)
            waited, longest = waited + seconds, min(_WAIT_SECONDS_MAX, longest * 2)
            self.clock.pause(seconds)
            return True

        return wait

    def _call(self, operation: str, arguments: dict[str, Any], *, is_write: bool) -> Answer:
        method = getattr(self.client(), operation)
        try:
            answer: Answer = method(**arguments)
        except (BotoCoreError, ClientError) as error:
            if self._watch is not None and isinstance(error, ClientError):
                self._watch(operation, error.response)
            raise self.translated(error, is_write=is_write) from error
        if self._watch is not None:
            self._watch(operation, answer)
        return answer

    def translated(self, error: Exception, *, is_write: bool) -> StoreError:
        """What an error of the SDK means."""
        return translated(error, self.place, is_write=is_write)


def server_ms(answer: Answer) -> int | None:
    """The server's wall clock when it answered, in whole seconds; None where it does not tell."""
    text = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return None if text is None else int(parsedate_to_datetime(text).timestamp() * 1000)
    except (TypeError, ValueError):
        return None
