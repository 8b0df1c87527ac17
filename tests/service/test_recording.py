"""`[record]` in the settings: what arrives over HTTP is written down by the rules."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from oncegate.recorder.reading import read_recordings
from oncegate.service.settings import RecordSettings
from tests.service.site import SECRET, Site, settings
from tests.service.test_config_loader import mistakes

SURFACE = '[surfaces.a]\nkey = "{id}"\nsignature = "bearer"\nsecrets = ["$S"]\ntenant = "t"\n'


def test_webhooks_are_recorded_and_neither_headers_nor_secrets_are(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[surfaces.hooks]\nkeep = ["status"]\n')
    record = RecordSettings(folder=str(tmp_path / "r"), rules=str(tmp_path / "rules.toml"))
    chosen = msgspec.structs.replace(settings(), record=record)
    with Site(tmp_path, chosen).serving() as site:
        for _ in range(2):
            site.hook({"id": "1", "status": "new", "name": "Anna"})
    site.gate.close()

    found = read_recordings([tmp_path / "r"])
    assert [one.verdict for one in found.answers.values()] == ["run", "replay"]
    assert found.arrivals[0].decoded()["status"] == "new"
    text = "".join(file.read_text() for file in (tmp_path / "r").iterdir())
    for word in (SECRET, "Anna", "uthorization", "acme"):
        assert word not in text


def test_rules_that_cannot_be_used_are_told_by_config_check(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[surfaces.b]\nkeep = ["x"]\n')
    text = f'[record]\nfolder = "r"\nrules = {json.dumps(str(rules))}\n{SURFACE}'
    (told,) = mistakes(tmp_path, text, S="secret-of-some-length")
    assert told.startswith("oncegate.toml:1: record: no surface is called 'b'; registered: a, ")
    rules.write_text('[surfaces.a]\ndrop = ["id"]\n')
    (told,) = mistakes(tmp_path, text, S="secret-of-some-length")
    assert told.startswith("oncegate.toml:1: record: surface a: the gate reads 'id'")
    (told,) = mistakes(tmp_path, text.replace("[surf", 'key = "open"\n[surf', 1), S="secret-of-some-length")
    assert "write a secret as the name of an environment variable" in told
    assert not (tmp_path / "r").exists()
