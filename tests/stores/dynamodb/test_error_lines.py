"""Each error of AWS becomes one line with the next step, and says whether anything may have happened."""

from __future__ import annotations

from typing import Any

import botocore.exceptions as botocore
import pytest

from oncegate.errors import SchemaMismatch, StoreError, StoreRejected, StoreUnavailable, StoreUnknown
from oncegate.stores.dynamodb.failures import Throttled, translated

PLACE = "dynamodb://orders?region=eu-central-1"
KEYS = {"endpoint_url": "https://dynamodb.nowhere", "error": "name\nnot known"}


def answered(code: str, message: str = "", status: int = 400) -> botocore.ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return botocore.ClientError(answer, "PutItem")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (botocore.EndpointConnectionError(**KEYS), StoreUnavailable, "check the region, the endpoint"),
        (botocore.ConnectTimeoutError(**KEYS), StoreUnavailable, "check the region, the endpoint"),
        (botocore.NoCredentialsError(), StoreUnavailable, "set AWS_ACCESS_KEY_ID"),
        (botocore.ProfileNotFound(profile="x"), StoreRejected, "profile"),
        (botocore.NoRegionError(), StoreRejected, "region"),
        (
            answered("UnrecognizedClientException", "bad token"),
            StoreUnavailable,
            "check the key, its region",
        ),
        (
            answered("AccessDeniedException", "no right"),
            StoreUnavailable,
            "the rights that docs/dynamodb.md",
        ),
        (answered("ExpiredTokenException"), StoreUnavailable, "this machine's clock"),
        (answered("ResourceNotFoundException"), SchemaMismatch, "create it with oncegate migrate"),
        (answered("ValidationException", "Type mismatch for key k"), SchemaMismatch, "is not a ledger"),
        (answered("ValidationException", "Item size has exceeded"), StoreRejected, "limit of 400 KB"),
        (answered("ProvisionedThroughputExceededException"), Throttled, "nothing was changed. Raise"),
        (answered("ThrottlingException"), Throttled, "on-demand capacity"),
        (answered("TransactionConflictException"), Throttled, "throttled"),
        (answered("InternalServerError", status=500), StoreUnknown, "it may have happened"),
        (botocore.ReadTimeoutError(**KEYS), StoreUnknown, "it may have happened"),
        (botocore.ConnectionClosedError(**KEYS), StoreUnknown, "it may have happened"),
    ],
)
def test_error_of_a_write_is_one_line(error: Exception, kind: type[StoreError], words: str) -> None:
    """With what to do; a write whose answer is missing is unknown, never refused."""
    told = translated(error, PLACE, is_write=True)

    assert type(told) is kind
    assert words in str(told)
    assert str(told).startswith(PLACE)
    assert "\n" not in str(told)


def test_read_without_an_answer_changed_nothing() -> None:
    """It is refused, not unknown."""
    assert type(translated(botocore.ReadTimeoutError(**KEYS), PLACE, is_write=False)) is StoreUnavailable
