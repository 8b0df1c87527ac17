"""`oncegate send`: a handler is tried out with the same event several times at once."""

from __future__ import annotations

import base64
import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate.cli.main import main
from oncegate.service.config_loader import read_configuration
from oncegate.service.settings import SignatureScheme
from tests.service.site import HOOKS, SECRET, Site, settings

REPOSITORY = Path(__file__).parents[2]


def send(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[Any], str]:
    code = main(["send", *words, "--json"])
    captured = capsys.readouterr()
    return code, [json.loads(line) for line in captured.out.splitlines()], captured.err


def test_one_event_five_times_is_one_effect(
    shared: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exactly one answer says that it ran; the others are replays, or came while it ran."""
    (tmp_path / "event.json").write_bytes(b'{"id": "sent"}')
    code, lines, _ = send(
        capsys,
        f"http://127.0.0.1:{shared.port}/in/hooks",
        f"--fixture={tmp_path}/event.json",
        "--times=5",
        "--concurrency=5",
        f"--header=Authorization: Bearer {SECRET}",
    )

    outcomes = [line["outcome"] for line in lines]
    assert code == 0
    assert outcomes.count("200 replay: false") == 1
    assert set(outcomes) <= {"200 replay: false", "200 replay: true", "409"}


def test_the_first_example_works_against_the_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the help has it, in the repository while `make run` runs; only the port is another."""
    monkeypatch.chdir(REPOSITORY)
    secret = re.search(r"SAMPLE_SECRET:-([^}]+)}", Path("Makefile").read_text("utf-8"))
    assert secret is not None
    sample = read_configuration(Path("examples/oncegate.toml"), {}).settings
    main(["send", "--help"])
    shown = capsys.readouterr().out.partition("examples:\n")[2].replace("\\\n", " ")
    program, _, *words = shlex.split(shown.splitlines()[0], comments=True)
    running = Site(tmp_path, sample)
    running.service._environment = {"SAMPLE_SECRET": secret[1]}
    with running.serving() as site:
        port = f":{sample.server.port}/"
        code, lines, _ = send(capsys, *(word.replace(port, f":{site.port}/") for word in words))

    assert (program, code, len(lines)) == ("oncegate", 0, 3)
    assert [line["outcome"] for line in lines].count("200 replay: false") == 1


def test_a_secret_signs_and_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    monkeypatch.setenv("SEND_SECRET", secret)
    (tmp_path / "event.json").write_bytes(b'{"id": "signed"}')
    surface = msgspec.structs.replace(HOOKS, signature=SignatureScheme.STANDARD_WEBHOOKS)
    running = Site(tmp_path, settings(surfaces={"hooks": surface}))
    running.service._environment = {"HOOKS": secret}
    with running.serving() as site:
        url = f"http://127.0.0.1:{site.port}/in/hooks"
        code, lines, err = send(
            capsys, url, f"--fixture={tmp_path}/event.json", "--times=1", "--secret-env=SEND_SECRET"
        )

    assert (code, [line["status"] for line in lines]) == (0, [200])
    assert secret not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://127.0.0.1:1/", "--fixture=nowhere.json"], "cannot be read"),
        (["http://10.0.0.1/", "--fixture=FILE"], "10.0.0.1"),
        (["ftp://127.0.0.1/", "--fixture=FILE"], "http"),
        (["http://127.0.0.1:1/", "--fixture=FILE", "--header=x"], "NAME: VALUE"),
        (["http://127.0.0.1:1/", "--fixture=FILE", "--secret-env=NOT_SET"], "NOT_SET"),
        (["http://127.0.0.1:1/", "--fixture=FILE", "--times=0"], "is not a number"),
    ],
)
def test_mistakes_are_told_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (tmp_path / "event.json").write_bytes(b"{}")

    code, lines, err = send(capsys, *(word.replace("FILE", f"{tmp_path}/event.json") for word in words))

    assert (code, lines) == (2, [])
    assert said in err
    assert err.count("\n") == 1


def test_nobody_there_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "event.json").write_bytes(b"{}")

    code, lines, _ = send(capsys, "http://127.0.0.1:1/", f"--fixture={tmp_path}/event.json", "--times=1")

    assert (code, lines[0]["outcome"]) == (1, "no connection")
