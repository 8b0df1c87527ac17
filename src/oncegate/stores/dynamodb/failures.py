"""What an error of the service means: not done, perhaps done, or refused for a reason to be told.

Every call to DynamoDB ends here if it fails. A request that was certainly not carried out becomes
StoreUnavailable. A write whose answer was lost becomes StoreUnknown and is never sent again from here:
the second copy would fail against the first one's result.
"""

from __future__ import annotations

from typing import Any, Final

from botocore import exceptions as botocore

from oncegate.errors import SchemaMismatch, StoreError, StoreRejected, StoreUnavailable, StoreUnknown

ITEM_BYTES_MAX: Final = 400 * 1024  # the service's own limit
# The request was refused before anything was changed; the same request may be sent again.
_THROTTLED: Final = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingError",
        "ThrottlingException",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_CREDENTIALS: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)
_OTHER_KEYS: Final = ("type mismatch for key", "does not match the schema", "required keys was not given")
_NOT_SENT: Final = (
    botocore.EndpointConnectionError,
    botocore.ConnectTimeoutError,
    botocore.ProxyConnectionError,
    botocore.SSLError,
)
_NO_CREDENTIALS: Final = (
    botocore.NoCredentialsError,
    botocore.PartialCredentialsError,
    botocore.CredentialRetrievalError,
    botocore.NoAuthTokenError,
    botocore.TokenRetrievalError,
)


class Throttled(StoreUnavailable):
    """The service refused the request for its rate, or for another transaction; nothing was changed."""


class ConditionFailed(StoreRejected):
    """A conditional write changed nothing; `item` is what stands there, None where nothing does."""

    def __init__(self, item: dict[str, Any] | None) -> None:
        super().__init__("the condition of a write does not hold")
        self.item = item


class TransactionRefused(StoreRejected):
    """A transaction changed nothing; `reasons` has one entry for each of its items."""

    def __init__(self, reasons: list[dict[str, Any]]) -> None:
        super().__init__("a transaction was refused")
        self.reasons = reasons


def translated(error: Exception, place: str, *, is_write: bool) -> StoreError:
    """The error of the store contract that an error of the SDK means."""
    if isinstance(error, botocore.ClientError):
        return _answered(error, place, is_write=is_write)
    if isinstance(error, _NOT_SENT):
        return StoreUnavailable(
            f"{place} cannot be reached ({_first_line(error)}); check the region, the endpoint and the"
            " network"
        )
    if isinstance(error, _NO_CREDENTIALS):
        return StoreUnavailable(
            f"{place}: no usable AWS credentials ({_first_line(error)}); set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give the machine a role"
        )
    if isinstance(error, (botocore.ParamValidationError, botocore.NoRegionError, botocore.ProfileNotFound)):
        return StoreRejected(f"{place}: {_first_line(error)}")
    if is_write:
        return StoreUnknown(f"{place}: no answer to a write ({_first_line(error)}); it may have happened")
    return StoreUnavailable(f"{place}: no answer ({_first_line(error)})")


def _answered(error: Any, place: str, *, is_write: bool) -> StoreError:
    answer = error.response
    code = str(answer.get("Error", {}).get("Code", ""))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(answer.get("Item"))
    if code == "TransactionCanceledException":
        return _cancelled(answer.get("CancellationReasons", []), place)
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return of_code(code, str(answer.get("Error", {}).get("Message", "")), place, status, is_write=is_write)


def of_code(code: str, message: str, place: str, status: int, *, is_write: bool) -> StoreError:
    """What an error code of the service means, of a whole request or of one statement of a batch."""
    if code in _THROTTLED:
        return Throttled(
            f"{place} is throttled ({code}); nothing was changed. Raise the capacity of the table and of"
            " its index, or use on-demand capacity"
        )
    if code in _CREDENTIALS:
        return StoreUnavailable(
            f"{place}: AWS refuses the credentials ({code}: {_short(message)}); check the key, its region,"
            " this machine's clock and the rights that docs/dynamodb.md lists"
        )
    if code in ("ResourceNotFoundException", "ResourceNotFound"):
        return SchemaMismatch(
            f"{place}: there is no such table in this region and account; create it with oncegate migrate"
        )
    if code in ("ValidationException", "ValidationError"):
        return _invalid(message, place)
    if is_write and (status >= 500 or code in ("InternalServerError", "InternalFailure", "")):
        return StoreUnknown(f"{place}: a write failed inside the service ({code}); it may have happened")
    return StoreUnavailable(f"{place}: {code}: {_short(message)}")


def _invalid(message: str, place: str) -> StoreError:
    lowered = message.lower()
    if "size" in lowered and "exceed" in lowered:
        return too_large(place)
    if any(sign in lowered for sign in _OTHER_KEYS):
        return SchemaMismatch(
            f"{place} is not a ledger: its key is not one binary attribute k; name another table, or create"
            " one with oncegate migrate"
        )
    return StoreRejected(f"{place}: {_short(message)}")


def _cancelled(reasons: list[dict[str, Any]], place: str) -> StoreError:
    codes = {str(reason.get("Code")) for reason in reasons} - {"None"}
    if codes and codes <= _THROTTLED:
        return Throttled(f"{place}: the transaction met another one ({', '.join(sorted(codes))})")
    return TransactionRefused(reasons)


def too_large(place: str) -> StoreRejected:
    """What is refused because an item holds no more."""
    return StoreRejected(
        f"{place}: an item would be larger than DynamoDB's limit of {ITEM_BYTES_MAX // 1024} KB; nothing"
        " was changed. Keep step results, labels and reasons short"
    )


def _first_line(error: Exception) -> str:
    return _short(str(error) or type(error).__name__)


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
