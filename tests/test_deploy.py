"""The files in deploy/: their commands exist, their settings load, their probes are answered."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from oncegate.cli.main import COMMANDS, build_parser
from oncegate.model.durations import parse_duration
from oncegate.service.config_loader import read_configuration
from tests.service.process import served

DEPLOY = Path(__file__).parent.parent / "deploy"
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SETTINGS = DEPLOY / "oncegate.toml"


def _manifests() -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))


def _containers() -> list[Any]:
    return [
        container
        for one in _manifests()
        if "template" in one["spec"]
        for container in one["spec"]["template"]["spec"]["containers"]
    ]


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Every command line in the folder, with the file that has it."""
    for container in _containers():
        yield f"kubernetes {container['name']}", container["args"]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    for name, service in compose["services"].items():
        if name != "db":
            yield f"compose {name}", service.get("command", ["serve"])
    for name in ("oncegate.service", "oncegate-worker.service", "Procfile"):
        text = (DEPLOY / name).read_text("utf-8")
        for line in re.findall(r"^(?:ExecStart\w*=\S*/|\w+: .*?)oncegate( .*)$", text, re.MULTILINE):
            yield name, shlex.split(line)
    (command,) = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    yield "Dockerfile", yaml.safe_load(command)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "words"), list(_commands()), ids=lambda value: str(value)[:40])
def test_every_command_is_one_that_the_command_line_takes(where: str, words: list[str]) -> None:
    arguments = build_parser(list(COMMANDS.values())).parse_args(words)
    assert callable(arguments.run), where


def test_every_file_has_a_command() -> None:
    """A pattern that finds nothing would check nothing."""
    found = [where for where, _ in _commands()]
    assert len(found) == 3 + 3 + 2 + 1 + 3 + 1
    assert {"oncegate.service", "oncegate-worker.service", "Procfile", "Dockerfile"} <= set(found)


def test_the_settings_load_with_what_the_environment_must_have() -> None:
    environment = {"NOTIFICATIONS_SECRET": SECRET, "ONCEGATE_URL": "postgresql://oncegate@db/oncegate"}
    settings = read_configuration(SETTINGS, environment).settings
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 8700)


@pytest.mark.slow
def test_the_probes_of_the_manifests_are_answered_by_a_running_service(tmp_path: Path) -> None:
    probes = {
        probe["httpGet"]["path"]
        for container in _containers()
        for name, probe in container.items()
        if name.endswith("Probe")
    }
    assert probes == {"/livez", "/readyz"}
    assert "/readyz" in (DEPLOY / "Dockerfile").read_text("utf-8")
    with served(tmp_path) as service:
        assert {path: service.call("GET", path).status for path in probes} == dict.fromkeys(probes, 200)


@pytest.mark.parametrize("container", _containers(), ids=lambda one: str(one["name"]))
def test_no_container_runs_as_root_or_writes_its_image(container: Any) -> None:
    locked = container["securityContext"]
    assert locked["runAsNonRoot"]
    assert locked["readOnlyRootFilesystem"]
    assert not locked["allowPrivilegeEscalation"]
    assert "USER 10001" in (DEPLOY / "Dockerfile").read_text("utf-8")


def test_a_stop_gives_the_service_longer_than_it_needs() -> None:
    needed = read_configuration(
        SETTINGS, {"NOTIFICATIONS_SECRET": SECRET, "ONCEGATE_URL": "sqlite:///x.db"}
    ).settings.server.drain_within
    graces = [
        one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        for one in _manifests()
        if one["kind"] == "Deployment"
    ]
    assert graces
    assert min(graces) > parse_duration(needed).total_seconds()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_units_are_taken_by_systemd(tmp_path: Path) -> None:
    """As they are, but for the place of the program; a misspelt setting is a line of its output."""
    program = shutil.which("true")
    assert program is not None
    for name in ("oncegate.service", "oncegate-worker.service"):
        text = (DEPLOY / name).read_text("utf-8").replace("/opt/oncegate/bin/oncegate", program)
        (tmp_path / name).write_text(text, "utf-8")
    units = [str(path) for path in tmp_path.glob("*.service")]
    told = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False, timeout=60
    )
    ours = [line for line in told.stderr.splitlines() if str(tmp_path) in line or "oncegate" in line]
    assert ours == []


def test_the_image_holds_what_it_needs_and_nothing_of_the_clone() -> None:
    """Each base has a version; the last stage copies the environment and the settings alone."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    assert not re.findall(r"^(ADD|FROM \S+:latest|FROM [^:\s]+(?:\s|$))", text, re.MULTILINE)
    _, last = text.rsplit("FROM ", 1)
    copied = re.findall(r"^COPY (?:--from=build )?(\S+) ", last, re.MULTILINE)
    assert copied == ["/opt/oncegate", "deploy/oncegate.toml"]
    left_out = (DEPLOY.parent / ".dockerignore").read_text("utf-8").split()
    assert {".git", ".venv", "build", "*.db"} <= set(left_out)
