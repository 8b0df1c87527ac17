"""The quick look at every file: digest, whether it may hold handlers, whether it parses."""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path
from typing import Final

from oncegate.audit.cache import FileFacts
from oncegate.audit.discovery import FoundFile
from oncegate.audit.source import parse
from oncegate.audit.suppress import MARK
from oncegate.audit.values import Skipped

CHECK_ALL_BYTES_MAX: Final = 6_000_000
# A file without any of these has no handler that the audit would recognise. The lines begin with a newline and the words are
# plain texts: both are found without trying a pattern at every character.
_LINES: Final = re.compile(
    rb"\n[ \t]*(?:(?:from|import)[ \t]+(?:celery|dramatiq|huey|rq|django_rq|arq|faststream|kafka|aiokafka"
    rb"|confluent_kafka|pika|aio_pika|nats|mcp|fastmcp|oncegate|kombu|taskiq|faust|chalice|functions_framework)\b"
    rb"|@[\w.]*(?:\.(?:post|put|patch|delete|route|api_route|task|db_task|tool|call_tool|agent|action|subscriber|handler|once"
    rb"|job|actor)\b|\b(?:api_view|require_http_methods|require_POST|csrf_exempt|action|cloud_event|on_message_published|shared_task"
    rb"|task|actor|job|on_(?:sqs|sns|kinesis)\w*|\w*_trigger)\b)"
    rb"|class[ \t][^\n]*(?:View|ViewSet|HTTPEndpoint|Resource|RequestHandler|Controller|Consumer|Worker|MessageHandler"
    rb"|ProducerMixin|ConsumerMixin|Task|GenericActor)\b"
    rb"|(?:async[ ])?def[ ](?:\w+\(\s*(?:self,[ ])?event\b|\w+\(\s*(?:ch|channel)\b[^\n]*method"
    rb"|(?:handle|on|process|consume|receive|dispatch)_\w+\(\s*(?:self,\s*)?(?:\w*_)?(?:msg|message|event|delivery|record|envelope"
    rb"|notification|body|payload|data|raw|incoming|request)\b|(?:consume|message_handler|event_handler|webhook_handler)\())"
)
_WORDS: Final = (
    b"add_api_route(", b"add_route(", b"add_url_rule(", b"add_post(", b"add_put(", b"add_patch(", b"Route(", b" path(", b"[path(", b"re_path(", b"web.post(",
    b"web.put(", b"web.patch(", b"basic_consume(", b"subscribe(", b"_handler(", b"add_subscriber(", b"register_callback(", b".enqueue",
    b"receive_message", b"xreadgroup(", b"consume(", b".getone(", b".getmany(", b"acks_late", b"auto_commit", b"onsumer.poll(",
    b"kafka.poll(", b" c.poll(", b"sub.fetch(", b"ubscriber.pull(", b"ubscription.fetch(",
)  # fmt: skip
_CALLED: Final = re.compile(rb"(?<!def )\b((?:handle|on|process|consume|receive|dispatch)_\w+)\(")
_CLASS: Final = re.compile(rb"^class\s+\w+\s*\(([^)\n]*)\)", re.MULTILINE)


def digest_of(content: bytes) -> bytes:
    """The content's digest."""
    return blake2b(content, digest_size=16).digest()


def read(file: FoundFile) -> bytes | Skipped:
    """The content of a file, or why it cannot be read."""
    try:
        return Path(file.path).read_bytes()
    except OSError as error:
        return Skipped(file.shown, f"cannot be read: {error.strerror or error}")


def may_have_handlers(content: bytes) -> bool:
    """Whether a file is worth parsing for handlers of its own."""
    return any(word in content for word in _WORDS) or _LINES.search(b"\n" + content) is not None


def size_of(file: FoundFile) -> int:
    """The size of a file in bytes; nothing for one that is gone."""
    try:
        return Path(file.path).stat().st_size
    except OSError:
        return 0


def scan(file: FoundFile, content: bytes, handlers_named: bool, checks_all: bool) -> FileFacts:
    """What the text alone tells; the syntax is checked where the file matters, or where all are checked."""
    is_candidate = handlers_named or may_have_handlers(content)
    facts = FileFacts(
        digest_of(content),
        content.count(b"\n"),
        is_candidate=is_candidate,
        has_comments=MARK in content,
        bases=tuple(
            {
                part.split(b".")[-1].split(b"[")[0].strip().decode("ascii", "replace")
                for found in _CLASS.findall(content)
                for part in found.split(b",")
            }
        ),
    )
    facts.bases = tuple(sorted(facts.bases))
    facts.calls = tuple(sorted({name.decode("ascii", "replace") for name in _CALLED.findall(content)}))
    if checks_all and not is_candidate:
        parsed = parse(file.shown, content)
        facts.is_checked = True
        if isinstance(parsed, Skipped):
            facts.skipped = parsed.reason
    return facts
