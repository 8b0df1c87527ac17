"""Credentials that the emulator accepts, and tables on it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from oncegate.cli.main import main
from tests.support.dynamodb_front import DynamoFront
from tests.support.servers import DynamoDb

REGION = "eu-central-1"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any are accepted; a machine's own are used only against a given server."""
    if "ONCEGATE_TEST_DYNAMODB" not in os.environ or "AWS_ACCESS_KEY_ID" not in os.environ:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "oncegate")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "oncegate")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def new_table(dynamodb: DynamoDb) -> str:
    """The address of a table that is created when it is first used."""
    return f"dynamodb://t-{uuid.uuid4().hex}?region={REGION}&endpoint={dynamodb.url}&create=1"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Calls the command line in this process."""

    def run(*words: str) -> SimpleNamespace:
        capsys.readouterr()
        code = main(list(words))
        shown = capsys.readouterr()
        return SimpleNamespace(code=code, out=shown.out, err=shown.err)

    return run


@pytest.fixture
def front(dynamodb: DynamoDb) -> Iterator[DynamoFront]:
    """A server before the emulator that fails as told."""
    with DynamoFront(dynamodb.url) as made:
        yield made


@pytest.fixture
def fronted(new_table: str, front: DynamoFront, dynamodb: DynamoDb) -> str:
    """The address of that table through the front."""
    return new_table.replace(dynamodb.url, front.url)
