"""One process that serves: settings become a gate, a gate a service, and uvicorn runs it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from oncegate.errors import StoreUnavailable
from oncegate.maintenance.schedule import PeriodicJob
from oncegate.model.durations import parse_duration
from oncegate.service.accesslog import GatheredLog
from oncegate.service.alarming import alarm_options
from oncegate.service.application import Service
from oncegate.service.fastpath.protocol import DirectHttp, ResponseHeads
from oncegate.service.host_allow_list import HostGuard, Hosts
from oncegate.service.large_bodies import SWITCH_SECONDS
from oncegate.service.listeners import BACKLOG, ByListener, address_of, listen, read_address
from oncegate.service.partners import PartnerBook
from oncegate.service.pipelining import Pipelines
from oncegate.service.protocol import HEADER_BYTES_MAX
from oncegate.service.proxies import TrustedProxies
from oncegate.service.settings import Settings
from oncegate.service.stopping import StopTimes, end_within
from oncegate.service.surfaces import drift_scan
from oncegate.store import Facet, require
from oncegate.wiring import Gate

OTHER_FILES = 256  # open beside connections: the ledger, what is called, the libraries
GARBAGE_THRESHOLD = 20_000  # new objects before a look for cycles, which requests do not leave behind
WIRE_FACTOR = 8  # a byte in a chunk of its own takes six

Started = Callable[[str, str | None], None]  # where it listens, and where for operators

DRIFT_EVERY = timedelta(minutes=10)
log = logging.getLogger("oncegate.service")


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
        """Everything is closed: the last-moment timer is not needed any more."""
        if self._last_moment is not None:
            self._last_moment.cancel()


def stop_times(service: Service) -> StopTimes:
    """How long the parts of ending may take."""
    return StopTimes(parse_duration(service.settings.server.drain_within).total_seconds())


def make_service(settings: Settings, environment: Mapping[str, str]) -> Service:
    """A service on the ledger that the settings name."""
    server = settings.server
    gate = Gate(settings.url, parked_max=server.parked_max, parked_bytes_max=server.parked_bytes_max)
    for facet in Facet:
        require(gate.engine.store, facet, "services")
    return Service(gate, settings, PartnerBook(gate.engine.commits, gate.engine.clock), environment)


def make_server(service: Service) -> DrainingServer:
    """The server of a service, with deadlines for slow senders."""
    server = service.settings.server
    hosts, refused = Hosts(server.host, server.hosts), partial(service.access.answered, "host", 421, None)
    guarded: Any = HostGuard(service, hosts, "[server] hosts", refused)
    if service.settings.listeners.admin is not None:
        names = Hosts(read_address(service.settings.listeners.admin)[0], server.hosts)
        admin = HostGuard(service, names, "[server] hosts", refused)
        guarded = ByListener(service.listeners, guarded, admin)
    config = uvicorn.Config(
        TrustedProxies(guarded, server.trusted_proxies),
        host=server.host,
        port=server.port,
        http=_protocol(service, hosts),
        lifespan="on",
        log_config=None,
        proxy_headers=False,  # it believes any peer on this machine; TrustedProxies does not
        access_log=False,
        server_header=False,
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=parse_duration(server.idle_within).total_seconds(),  # type: ignore[arg-type]  # as below
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
        "room": service.connections,
        "pipelines": Pipelines(),
        "webhooks": service.webhooks,
        "heads": ResponseHeads(),
        "hosts": hosts,
        "listeners": service.listeners,
    }
    return type("ServiceHttp", (DirectHttp,), limits)


def serve(
    settings: Settings,
    environment: Mapping[str, str],
    started: Started = lambda address, admin: None,
) -> bool:
    """Serves until told to end; False if it could not begin. The worker runs beside it.

    Raises ConfigError for a setting that cannot be used: also for another key template than the ledger's.
    """
    service = make_service(settings, environment)
    service.access = GatheredLog(service.gate.engine.clock)
    _open_enough_files(service)
    server = make_server(service)
    with suppress(StoreUnavailable):  # it may come later; until then nobody is told that we are ready
        service.gate.engine.store.connect().close()
    _settle_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(service, server, started))
    except SystemExit:  # uvicorn's way to end where the application refuses to start
        if service.refusal is None:
            raise
    finally:
        service.gate.close()
        server.is_over()
    if service.refusal is not None:
        raise service.refusal
    return server.started


def _open_enough_files(service: Service) -> None:
    """Raises the limit of open files for the connections; where it cannot be raised, fewer are taken."""
    wanted = service.settings.server.connections_max + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != unlimited and soft < wanted:
        service.connections.total_max = max(1, soft - OTHER_FILES)
        log.warning(
            "only %d files may be open: at most %d connections instead of %d; raise the limit (ulimit -n)",
            soft,
            service.connections.total_max,
            service.settings.server.connections_max,
        )


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


def _of_contract(service: Service) -> list[PeriodicJob]:
    """The comparison of realtime with confirmations, where the contract is served."""
    contract = service.settings.contract
    if not contract.enabled:
        return []
    return [PeriodicJob("drift scan", DRIFT_EVERY, run_once=drift_scan(service.gate, contract).run_once)]


async def _run(service: Service, server: DrainingServer, started: Started) -> None:
    settings = service.settings.server
    with ExitStack() as stack:
        sockets = [stack.enter_context(listen(settings.host, settings.port))]
        if (admin := service.listeners.open_admin()) is not None:
            sockets.append(stack.enter_context(admin))
        started(address_of(sockets[0]), None if admin is None else address_of(admin))
        assert isinstance(service.gate, Gate)
        worker = service.gate.worker(
            without=("accepted", "deliveries", "sources"),  # the service runs them with its own drain
            feed_retention=service.settings.feed.retention,
            grace=timedelta(seconds=stop_times(service).reserve / 2),
            more=_of_contract(service),
            **alarm_options(service.settings, os.environ),
        )
        async with worker:
            await server.serve(sockets=sockets)
