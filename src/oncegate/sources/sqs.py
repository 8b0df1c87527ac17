"""Amazon SQS, standard and FIFO queues: boto3 in two threads, one for the long poll, one for the rest.

Deletes and extensions go in batches of ten whose entries are named by their position: the same message may
be in one batch twice. An answer of 200 may contain failures, and each is read. The receipt of a message is
its newest one. A redriven message has a new id, so ids are for logs only.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import ceil
from typing import Any, Final

from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.model.redact import masked_url
from oncegate.sources.contract import Delivery, InFlight, Traits

BATCH_MAX: Final = 10
HOLD_MAX_SECONDS: Final = 12 * 3600.0
VISIBILITY_SECONDS: Final = 30
WAIT_SECONDS: Final = 5  # stopping waits for the poll under way
TRIES_MAX: Final = 3
RECEIVE_COUNT_MIN: Final = 3
RECEIPTS_MAX: Final = 100_000  # newest receipts that are kept; SQS lets 120,000 messages be in flight
INSTALL: Final = "SQS needs its client: pip install 'oncegate[sqs]'"

_REGION: Final = re.compile(r"^https://sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/")
_MISSING: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})
_DENIED: Final = frozenset(
    {"AccessDenied", "AccessDeniedException", "InvalidClientTokenId", "SignatureDoesNotMatch",
     "UnrecognizedClientException", "InvalidAccessKeyId", "ExpiredToken", "InvalidSecurity"}
)  # fmt: skip
_NEEDS: Final = (
    "sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility and sqs:GetQueueAttributes"
)


class Sqs:
    """Messages of one queue, named by its URL. `visibility` is the lease; by default the queue's own."""

    def __init__(
        self,
        url: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        visibility: int | None = None,
        **client: Any,
    ) -> None:
        found = _REGION.match(url)
        if found is not None and region not in (None, found[1]):
            raise ConfigError(f"SQS: the queue {url} is in {found[1]}, not in {region}")
        if "://" not in url:
            raise ConfigError(f"SQS: {url[:80]!r} is not the URL of a queue, such as https://sqs.…/name")
        if visibility is not None and not 1 <= visibility <= HOLD_MAX_SECONDS:
            raise ConfigError("SQS: visibility must be from 1 to 43200 seconds")
        self.url, self._region, self._endpoint = url, region or (found and found[1]), endpoint
        self._visibility, self._options = visibility, client
        self._lease = visibility or VISIBILITY_SECONDS
        self._client: Any = None
        self._polls: ThreadPoolExecutor | None = None
        self._calls: ThreadPoolExecutor | None = None
        self._poll: asyncio.Future[Any] | None = None
        self._receipts: dict[str, str] = {}
        self._dead_url: str | None = None
        self._is_fifo = False

    @property
    def name(self) -> str:
        """`sqs:` with the name of the queue."""
        return f"sqs:{self.url.rstrip('/').rpartition('/')[2]}"

    async def open(self, in_flight: InFlight) -> Traits:
        """Reads the queue's settings and those of its dead-letter queue."""
        if self._client is None:
            self._connect()
        attributes = await self._call(self._attributes, self.url)
        self._is_fifo = attributes.get("FifoQueue") == "true"
        self._lease = self._visibility or int(attributes["VisibilityTimeout"]) or VISIBILITY_SECONDS
        retention = {"queue": float(attributes["MessageRetentionPeriod"])}
        warnings = []
        redrive = json.loads(attributes.get("RedrivePolicy") or "{}")
        if redrive:
            retention["dead-letter queue"] = await self._dead_retention(redrive["deadLetterTargetArn"])
            if int(redrive["maxReceiveCount"]) < RECEIVE_COUNT_MIN:
                warnings.append(
                    f"maxReceiveCount is {redrive['maxReceiveCount']}: a few restarts send good messages to"
                    f" the dead-letter queue; set it to {RECEIVE_COUNT_MIN} or more"
                )
        if retention.get("dead-letter queue", HOLD_MAX_SECONDS * 100) <= retention["queue"]:
            warnings.append(
                "the dead-letter queue keeps messages no longer than the queue, counted from their first"
                " sending: dead letters may be gone at once"
            )
        return Traits(
            kind="sqs",
            server=masked_url(self._endpoint or self.url),
            queue=self.name.removeprefix("sqs:"),
            lease_seconds=float(self._lease),
            hold_max_seconds=HOLD_MAX_SECONDS,
            delay_max_seconds=HOLD_MAX_SECONDS / 2,
            counts_deliveries=True,
            blocks_lanes=self._is_fifo,
            has_dead_letters=self._dead_url is not None,
            retention_seconds=retention,
            receive_max=BATCH_MAX,
            poll_seconds=WAIT_SECONDS,
            warnings=tuple(warnings),
        )

    def _connect(self) -> None:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ModuleNotFoundError as error:
            raise ConfigError(INSTALL) from error
        config = Config(
            connect_timeout=5,
            read_timeout=WAIT_SECONDS + 20,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=4,
        )
        try:
            self._client = boto3.session.Session().client(
                "sqs", region_name=self._region, endpoint_url=self._endpoint, config=config, **self._options
            )
        except (BotoCoreError, ValueError) as error:
            raise BadSource(f"{self.name}: {error}; give region or AWS_DEFAULT_REGION") from error
        self._polls = ThreadPoolExecutor(1, "oncegate-sqs-poll")
        self._calls = ThreadPoolExecutor(1, "oncegate-sqs-call")

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._client is None:
            raise SourceUnavailable(f"{self.name} is not open")
        with self._trouble():
            return await asyncio.get_running_loop().run_in_executor(self._calls, function, *arguments)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """Errors of the client as errors of the contract."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _MISSING or code.endswith(("NonExistentQueue", "QueueDoesNotExist")):
                raise BadSource(
                    f"there is no queue {self.url}: check its name, its account and its region"
                ) from error
            if code in _DENIED:
                raise BadSource(f"{self.name}: no permission ({code}); it needs {_NEEDS}") from error
            raise SourceUnavailable(f"{self.name}: {error}") from error
        except NoCredentialsError as error:
            raise BadSource(f"{self.name}: {error}; set AWS credentials or a role") from error
        except (BotoCoreError, OSError) as error:
            raise SourceUnavailable(f"{self.name}: {error}") from error

    def _attributes(self, url: str) -> Mapping[str, str]:
        found = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        attributes: Mapping[str, str] = found["Attributes"]
        return attributes

    async def _dead_retention(self, arn: str) -> float:
        """How long the dead-letter queue keeps messages; 14 days, the longest, where it may not be read."""
        *_, account, queue = arn.split(":")
        try:
            self._dead_url = await self._call(self._find, queue, account)
            attributes = await self._call(self._attributes, self._dead_url)
        except BadSource:
            return 14 * 86_400.0
        return float(attributes["MessageRetentionPeriod"])

    def _find(self, queue: str, account: str) -> str:
        found = self._client.get_queue_url(QueueName=queue, QueueOwnerAWSAccountId=account)
        return str(found["QueueUrl"])

    async def receive(self, count_max: int, wait_seconds: float) -> Sequence[Delivery]:
        """One long poll. One that was cancelled goes on in its thread, and its messages come next time."""
        if self._client is None:
            raise SourceUnavailable(f"{self.name} is not open")
        if self._poll is None:
            wait, count = min(20, int(wait_seconds)), min(count_max, BATCH_MAX)
            loop = asyncio.get_running_loop()
            self._poll = loop.run_in_executor(self._polls, self._receive, count, wait)
        with self._trouble():
            try:
                answer = await asyncio.shield(self._poll)
            except asyncio.CancelledError:
                raise
            except BaseException:
                self._poll = None
                raise
        self._poll = None
        return [self._delivery(one) for one in answer.get("Messages", ())]

    def _receive(self, count: int, wait: int) -> Any:
        return self._client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=wait,
            VisibilityTimeout=self._lease,
            MessageSystemAttributeNames=["ApproximateReceiveCount", "MessageGroupId", "AWSTraceHeader"],
            MessageAttributeNames=["All"],
        )

    def _delivery(self, message: Any) -> Delivery:
        system = message.get("Attributes", {})
        headers = {
            name: value["StringValue"]
            for name, value in message.get("MessageAttributes", {}).items()
            if "StringValue" in value
        }
        self._receipts.pop(message["MessageId"], None)
        self._receipts[message["MessageId"]] = message["ReceiptHandle"]
        while len(self._receipts) > RECEIPTS_MAX:  # of messages that were let go and never came again
            del self._receipts[next(iter(self._receipts))]
        return Delivery(
            message["Body"].encode(),
            message["MessageId"],
            headers,
            lane=system.get("MessageGroupId") if self._is_fifo else None,
            times_delivered=int(system.get("ApproximateReceiveCount", 1)),
            handle=message["ReceiptHandle"],
        )

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Deletes by the newest receipts."""
        receipts = [self._receipts.pop(one.message_id, one.handle) for one in deliveries]
        entries = [{"ReceiptHandle": receipt} for receipt in receipts]
        await self._call(self._in_batches, "delete_message_batch", entries)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Hides messages for another lease."""
        entries = [{"ReceiptHandle": one.handle, "VisibilityTimeout": self._lease} for one in deliveries]
        await self._call(self._in_batches, "change_message_visibility_batch", entries)

    async def give_back(self, delivery: Delivery, delay_seconds: float) -> None:
        """Shows a message again after the delay, in whole seconds."""
        if self._receipts.get(delivery.message_id) == delivery.handle:
            del self._receipts[delivery.message_id]
        entry = {"ReceiptHandle": delivery.handle, "VisibilityTimeout": ceil(delay_seconds)}
        await self._call(self._in_batches, "change_message_visibility_batch", [entry])

    def _in_batches(self, method: str, entries: list[dict[str, Any]]) -> None:
        """Sends all; repeats those that failed by no fault of ours. A receipt that is over is no error."""
        left = entries
        for _ in range(TRIES_MAX):
            failed = []
            for first in range(0, len(left), BATCH_MAX):
                batch = left[first : first + BATCH_MAX]
                answer = getattr(self._client, method)(
                    QueueUrl=self.url,
                    Entries=[{"Id": str(place), **one} for place, one in enumerate(batch)],
                )
                failed += [
                    batch[int(one["Id"])] for one in answer.get("Failed", ()) if not one["SenderFault"]
                ]
            if not failed:
                return
            left = failed
        raise SourceUnavailable(f"{self.name}: {method} failed for {len(left)} messages, {TRIES_MAX} times")

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Sends a copy to the dead-letter queue, then deletes the message."""
        await self._call(self._send_dead, delivery, reason)
        await self.ack([delivery])

    def _send_dead(self, delivery: Delivery, reason: str) -> None:
        told = {**delivery.headers, "oncegate-reason": reason[:200] or "unreadable"}
        attributes = {
            name: {"DataType": "String", "StringValue": value} for name, value in list(told.items())[-10:]
        }
        more = {}
        if self._is_fifo:
            more = {
                "MessageGroupId": delivery.lane or "none",
                "MessageDeduplicationId": delivery.message_id,
            }
        self._client.send_message(
            QueueUrl=self._dead_url,
            MessageBody=delivery.body.decode(),
            MessageAttributes=attributes,
            **more,
        )

    async def lag(self) -> int | None:
        """About how many messages are visible."""
        if self._client is None:
            return None
        attributes = await self._call(self._attributes, self.url)
        return int(attributes["ApproximateNumberOfMessages"])

    async def close(self) -> None:
        """Waits for the poll under way and returns what it brought."""
        client, poll, self._poll = self._client, self._poll, None
        if client is None:
            return
        try:
            if poll is not None:
                answer = await poll
                for one in answer.get("Messages", ()):
                    await self.give_back(self._delivery(one), 0.0)
        except Exception:  # noqa: BLE001  they come again when their visibility ends
            self._receipts.clear()
        self._client = None
        for threads in (self._polls, self._calls):
            if threads is not None:
                threads.shutdown(wait=False)
        await asyncio.to_thread(client.close)
