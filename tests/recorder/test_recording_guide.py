"""docs/recording.md: its examples can be read and used as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from oncegate.recorder.recording import (
    AnswerLine,
    ArrivalLine,
    EndLine,
    Header,
    SurfaceLine,
    decode_line,
    encode_line,
)
from oncegate.recorder.rules_file import read_rules

GUIDE = (Path(__file__).parents[2] / "docs" / "recording.md").read_text("utf-8")
LINES = (Header, SurfaceLine, ArrivalLine, AnswerLine, EndLine)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_the_lines_of_the_format_are_lines_of_the_format() -> None:
    (example,) = blocks("json")
    kinds = [type(decode_line(line.encode())) for line in example.splitlines()]
    assert kinds == list(LINES)
    for line in example.splitlines():
        assert msgspec.json.decode(encode_line(decode_line(line.encode()))) == msgspec.json.decode(line)


def test_every_field_of_the_format_is_explained() -> None:
    table = GUIDE[GUIDE.index("| line | fields |") :]
    for kind in LINES:
        for field in msgspec.structs.fields(kind):
            assert f"`{field.name}`" in table, field.name


def test_the_rules_of_the_example_can_be_used(tmp_path: Path) -> None:
    (rules,) = [block for block in blocks("toml") if block.startswith("[surfaces")]
    (tmp_path / "rules.toml").write_text(rules)
    found = read_rules(tmp_path / "rules.toml")["portbase.cis"]
    assert found.keep == ["status", "lines.*.sku"]
    assert found.occurred_at == "sentAt"


def test_the_program_of_the_example_runs(tmp_path: Path) -> None:
    (program,) = [block for block in blocks("python") if "Recorder(" in block]
    program = program.replace("Gate()", f"Gate('sqlite:///{tmp_path}/l.db')").replace(
        '"recordings"', repr(str(tmp_path))
    )
    names: dict[str, object] = {}
    exec(program, names)
    assert "Recorder" in names
