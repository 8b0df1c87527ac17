"""Real servers for tests: each on free ports of the loopback interface, in a folder of its own, stopped by
its process id.

How a test gets one: ask for a fixture of tests/conftest.py. Each runs once per test process.

    def test_x(valkey: Valkey):        valkey.url      redis://127.0.0.1:PORT
    def test_x(nats: Nats):            nats.url        nats://127.0.0.1:PORT
    def test_x(rabbitmq: RabbitMq):    rabbitmq.url    amqp://guest:guest@127.0.0.1:PORT/
    def test_x(ministack: MiniStack):  ministack.url   http://127.0.0.1:PORT   (SQS, DynamoDB, S3)
    def test_x(dynamodb: DynamoDb):    dynamodb.url    http://127.0.0.1:PORT

A test that kills or restarts its server starts its own:

    with running(Valkey) as server:
        server.kill()                  kill -9
        server.start()                 again, on the same port with the same data

Where the program is absent, the test is skipped with one line that names the command which installs it.
ONCEGATE_REQUIRE_SERVERS=ministack,dynamodb,rabbitmq makes absence an error. ONCEGATE_TEST_REDIS, _NATS,
_AMQP, _SQS, _DYNAMODB and _S3 hold the address of a server that runs already; `running` then yields
that address, and tests which kill their server are skipped. Kafka is in tests/support/kafka_mock.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import pytest

from oncegate.testing.waiting import wait_until
from tests.support import server_programs

REQUIRE_VARIABLE: Final = "ONCEGATE_REQUIRE_SERVERS"
START_SECONDS_MAX: Final = 180.0  # a loaded machine took more than 60 to start RabbitMQ
STOP_SECONDS_MAX: Final = 10.0
MEMORY: Final = Path("/dev/shm")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def listens(port: int) -> bool:
    """Whether a connection to the port is accepted."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """One server process. `port` and `folder` stay the same from start to start."""

    name: ClassVar[str]
    install: ClassVar[str]
    variable: ClassVar[str]

    def __init__(self, given: str | None = None) -> None:
        self.given = given
        self._process: subprocess.Popen[bytes] | None = None
        if given is None:
            self.folder = Path(tempfile.mkdtemp(prefix=f"oncegate-{self.name}-", dir=_roomy_place()))
            (self.port,) = free_ports(1)

    @classmethod
    def is_present(cls) -> bool:
        """Whether the program is installed."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The words that start the server in the foreground."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """What the server reads from its environment, beside ours."""
        return {}

    def is_ready(self) -> bool:
        """Whether the server answers."""
        return listens(self.port)

    def own_url(self) -> str:
        """The address of the server that this object started."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """The address for clients."""
        return self.given or self.own_url()

    @property
    def pid(self) -> int:
        """The server's process, which is also the number of its process group."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        with (self.folder / "log").open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env={**os.environ, **self.environment()},
                start_new_session=True,
            )
        try:
            wait_until(self._has_come, what=f"start of {self.name}", seconds=START_SECONDS_MAX)
        except BaseException:
            self.kill()
            raise

    def _has_come(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended at its start: {self.log()[-2000:]}")
        return self.is_ready()

    def log(self) -> str:
        """What the server has printed."""
        return (self.folder / "log").read_text("utf-8", "replace")

    def kill(self) -> None:
        """Ends the server at once, as kill -9 does."""
        if self.given:
            pytest.skip(f"the server of {self.variable} is not ours to kill")
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Asks the server to end, and ends it after ten seconds."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS_MAX)
        self.kill()

    def remove(self) -> None:
        """Ends the server and deletes its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Valkey(Server):
    """Valkey 9 with an append-only file that is flushed at every write; `settings` are further words."""

    name, install, variable = "valkey", "pip install -e '.[dev]'", "ONCEGATE_TEST_REDIS"

    def __init__(self, given: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(given)
        self.settings = {"appendonly": "yes", "appendfsync": "always", **(settings or {})}

    @classmethod
    def is_present(cls) -> bool:
        return server_programs.valkey() is not None

    def command(self) -> list[str]:
        words = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": "", **self.settings}
        pairs = (word for name, value in words.items() for word in (f"--{name}", str(value)))
        return [str(server_programs.valkey()), *pairs]

    def own_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


class Nats(Server):
    """A NATS server with JetStream, which flushes every message before it acknowledges it."""

    name, install, variable = "nats", "pip install -e '.[dev]'", "ONCEGATE_TEST_NATS"

    @classmethod
    def is_present(cls) -> bool:
        return server_programs.nats() is not None

    def command(self) -> list[str]:
        settings = self.folder / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{self.folder}/data", sync_interval: always }}\n',
            "utf-8",
        )
        return [str(server_programs.nats()), "-c", str(settings)]

    def own_url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


class RabbitMq(Server):
    """RabbitMQ of Debian's package, with an Erlang port mapper of its own."""

    name, install, variable = "rabbitmq", "apt-get install rabbitmq-server", "ONCEGATE_TEST_AMQP"
    plugins: ClassVar[str] = ""

    def __init__(self, given: str | None = None) -> None:
        super().__init__(given)
        self._mapper: subprocess.Popen[bytes] | None = None
        self._ports = free_ports(3)

    @classmethod
    def is_present(cls) -> bool:
        return server_programs.rabbitmq() is not None

    def command(self) -> list[str]:
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlog.console = true\nlog.console.level = warning\n"
            f"{self.settings()}",
            "utf-8",
        )
        (self.folder / "plugins").write_text(f"[{self.plugins}].", "utf-8")
        return [str(server_programs.rabbitmq())]

    def environment(self) -> Mapping[str, str]:
        mapper, nodes = self._ports[:2]
        return {
            "HOME": str(self.folder),
            "RUNNING_UNDER_SYSTEMD": "1",  # the script becomes the server: its pid is the server's
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": f"t{mapper}@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "db"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_DIST_PORT": str(nodes),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def start(self) -> None:
        if self._mapper is None:
            words = ["epmd", "-address", "127.0.0.1", "-port", str(self._ports[0])]
            self._mapper = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: listens(self._ports[0]), what="start of epmd")
        super().start()

    def remove(self) -> None:
        super().remove()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()

    def own_url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def settings(self) -> str:
        """Further lines of the server's settings."""
        return ""


class ManagedRabbitMq(RabbitMq):
    """RabbitMQ with its management API, which takes some seconds more to start."""

    plugins = "rabbitmq_management"

    @property
    def management(self) -> str:
        """The address of the management API, which the user of the broker may ask."""
        if self.given:
            pytest.skip(f"{self.variable} names no management API")
        return f"http://127.0.0.1:{self._ports[2]}"

    def settings(self) -> str:
        return f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self._ports[2]}\n"


class MiniStack(Server):
    """A model of SQS, DynamoDB and S3 in memory; any credentials and region are accepted."""

    name, install, variable = "ministack", "make servers", "ONCEGATE_TEST_SQS"

    @classmethod
    def is_present(cls) -> bool:
        return server_programs.ministack() is not None

    def command(self) -> list[str]:
        return [str(server_programs.ministack())]

    def environment(self) -> Mapping[str, str]:
        return {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "sqs,dynamodb,s3",
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
        }

    def own_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class DynamoDb(Server):
    """AWS's DynamoDB Local, in memory; any credentials and region are accepted.

    It listens on all interfaces: it has no setting for that. It holds only what tests write.
    """

    name, install, variable = "dynamodb", "make servers", "ONCEGATE_TEST_DYNAMODB"

    @classmethod
    def is_present(cls) -> bool:
        return server_programs.dynamodb() is not None

    def command(self) -> list[str]:
        found = server_programs.dynamodb()
        assert found is not None
        java, folder = found
        flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Djava.library.path={folder}/DynamoDBLocal_lib"]
        options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self.port)]
        return [str(java), *flags, "-jar", str(folder / "DynamoDBLocal.jar"), *options]

    def own_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class SeaweedFs(Server):
    """SeaweedFS: S3 with Object Lock. Access key `ak`, secret key `sk`. Its first bucket takes some 5 s."""

    name, install, variable = "seaweedfs", "make servers SERVERS=seaweedfs", "ONCEGATE_TEST_S3"

    def __init__(self, given: str | None = None) -> None:
        super().__init__(given)
        self._ports = free_ports(7)

    @classmethod
    def is_present(cls) -> bool:
        return server_programs.seaweedfs() is not None

    def command(self) -> list[str]:
        actions = '["Admin","Read","Write","List","Tagging"]'
        (self.folder / "s3.json").write_text(
            '{"identities":[{"name":"a","credentials":[{"accessKey":"ak","secretKey":"sk"}],'
            f'"actions":{actions}}}]}}',
            "utf-8",
        )
        names = ("master", "master.port.grpc", "volume", "volume.port.grpc", "filer", "filer.port.grpc")
        ports = [
            f"-{name if name.endswith('.grpc') else name + '.port'}={port}"
            for name, port in zip(names, self._ports, strict=False)
        ]
        return [
            str(server_programs.seaweedfs()),
            f"-logdir={self.folder}",
            "server",
            f"-dir={self.folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-volume.max=100",
            "-master.volumeSizeLimitMB=64",
            "-volume.minFreeSpace=1",
            "-filer",
            "-s3",
            f"-s3.config={self.folder}/s3.json",
            f"-s3.port={self.port}",
            f"-s3.port.grpc={self._ports[6]}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *ports,
        ]

    def own_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


S = TypeVar("S", bound=Server)


@contextmanager
def running(kind: type[S]) -> Iterator[S]:
    """A server of this kind, from start to end; skips the test where the program is absent."""
    given = os.environ.get(kind.variable)
    if given:
        yield kind(given)
        return
    check_present(kind)
    server = kind()
    server.start()
    try:
        yield server
    finally:
        server.remove()


def check_present(kind: type[Server]) -> None:
    """Skips the test where the program is absent; fails it where ONCEGATE_REQUIRE_SERVERS names it."""
    if kind.is_present():
        return
    missing = f"{kind.name} was not found: {kind.install}"
    if kind.name in os.environ.get(REQUIRE_VARIABLE, "").replace(" ", "").split(","):
        pytest.fail(f"{missing} ({REQUIRE_VARIABLE} names it)", pytrace=False)
    pytest.skip(missing)


def _roomy_place() -> Path | None:
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 * 2**30
    return MEMORY if has_room else None
