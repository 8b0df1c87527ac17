"""One process that serves: settings become a gate, a gate a service, and uvicorn runs it."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import FrameType

import uvicorn

from oncegate.errors import StoreUnavailable
from oncegate.model.durations import parse_duration
from oncegate.service.accesslog import GatheredLog
from oncegate.service.application import Service
from oncegate.service.direct import DirectHttp, Heads
from oncegate.service.hosts import HostGuard, Hosts
from oncegate.service.partners import PartnerBook
from oncegate.service.protocol import HEADER_BYTES_MAX
from oncegate.service.settings import Settings
from oncegate.service.stopping import StopTimes, end_within
from oncegate.wiring import Gate

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 5  # how long a connection may have nothing to say
GARBAGE_THRESHOLD = 20_000  # new objects before a look for cycles, which requests do not leave behind
WIRE_FACTOR = 8  # a byte in a chunk of its own takes six


class DrainingServer(uvicorn.Server):
    """Tells the service that it ends before it stops taking connections."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._times = stop_times(service)
        self._last_moment: threading.Timer | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or an interrupt: not ready any more, then requests under way are finished."""
        self._service.is_draining = True
        # Not the inherited way, which ends by raising the signal again: a finished drain is a success.
        self.force_exit = self.should_exit
        self.should_exit = True
        if self._last_moment is None:
            self._last_moment = end_within(self._times.whole)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends waits for events, which have nothing to finish, then lets the rest be finished."""
        self._service.feed.end_waiting()
        ending = asyncio.create_task(self._service.end_work())
        await super().shutdown(sockets)
        await ending

    def is_over(self) -> None:
        """Everything is closed: nobody needs to be hurried any more."""
        if self._last_moment is not None:
            self._last_moment.cancel()


def stop_times(service: Service) -> StopTimes:
    """How long the parts of ending may take."""
    return StopTimes(parse_duration(service.settings.server.drain_within).total_seconds())


def make_service(settings: Settings, environment: Mapping[str, str]) -> Service:
    """A service on the ledger that the settings name."""
    gate = Gate(settings.url)
    return Service(gate, settings, PartnerBook(gate.commits, gate.clock), environment)


def make_server(service: Service) -> DrainingServer:
    """The server of a service, with deadlines for slow senders."""
    server = service.settings.server
    hosts, refused = Hosts(server.host, server.hosts), partial(service.access.answered, "host", 421, None)
    config = uvicorn.Config(
        HostGuard(service, hosts, "[server] hosts", refused),
        host=server.host,
        port=server.port,
        http=_protocol(service, hosts),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=stop_times(service).work,  # type: ignore[arg-type]  # any number will do
    )
    return DrainingServer(config, service)


def _protocol(service: Service, hosts: Hosts) -> type[DirectHttp]:
    """The protocol of this service's connections, with its limits."""
    server = service.settings.server
    limits = {
        "headers_within_seconds": parse_duration(server.headers_within).total_seconds(),
        "body_within_seconds": parse_duration(server.body_within).total_seconds(),
        "unread_seconds": parse_duration(server.unread_within).total_seconds(),
        "wire_bytes_max": server.body_bytes_max * WIRE_FACTOR + HEADER_BYTES_MAX,
        "body_bytes_max": server.body_bytes_max,
        "arriving": service.arriving,
        "webhooks": service.webhooks,
        "heads": Heads(),
        "hosts": hosts,
    }
    return type("ServiceHttp", (DirectHttp,), limits)


def serve(
    settings: Settings,
    environment: Mapping[str, str],
    started: Callable[[str], None] = lambda address: None,
) -> bool:
    """Serves until told to end; False if it could not begin. Caretakers work beside it."""
    service = make_service(settings, environment)
    service.access = GatheredLog(service.gate.clock)
    server = make_server(service)
    with suppress(StoreUnavailable):  # it may come later; until then nobody is told that we are ready
        service.gate.store.connect().close()
    _settle_memory()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(service, server, started))
    finally:
        service.gate.close()
        server.is_over()
    return server.started


def _settle_memory() -> None:
    """Tells the collector that what is here now stays: it need not be looked through with every request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: it is about twice as fast."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _run(service: Service, server: DrainingServer, started: Callable[[str], None]) -> None:
    settings = service.settings.server
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG) as listener:
        host, port = listener.getsockname()[:2]
        started(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        assert isinstance(service.gate, Gate)
        care = service.gate.caretakers(
            feed_retention=service.settings.feed.retention,
            grace=timedelta(seconds=stop_times(service).reserve / 2),
        )
        async with care:
            await server.serve(sockets=[listener])
