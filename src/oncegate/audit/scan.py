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
# A file without any of these has no handler that the audit would recognise.
_MAY_HAVE_HANDLERS: Final = re.compile(
    rb"celery|shared_task|dramatiq|huey|from rq|import rq|django_rq|arq|faststream|@\w+\.subscriber|[Kk]afka|pika|basic_consume|nats|pubsub|subscribe\("
    rb"|receive_messages?|lambda_handler|def \w+\(event\b|@\w+\.(?:post|put|patch|delete|route|api_route|task|tool|agent|action)\b"
    rb"|fastapi|flask|starlette|aiohttp|django|mcp|oncegate|xreadgroup|\.poll\(|kombu|taskiq|faust|\bactor\b|chalice|functions_framework"
    rb"|def (?:handle|on|process|consume|receive|dispatch)_?(?:event|message|msg|webhook|notification|delivery|record|callback|incoming)?"
    rb"|def (?:consume|message_handler|event_handler|webhook_handler)\(|RequestHandler|Retry\(|acks_late|auto_commit|\.enqueue\("
)
_CALLED: Final = re.compile(rb"(?<!def )\b((?:handle|on|process|consume|receive|dispatch)_\w+)\(")
_CLASS: Final = re.compile(rb"^class\s+\w+\s*\(([^)\n]*)\)", re.M)


def digest_of(content: bytes) -> bytes:
    """The content's digest."""
    return blake2b(content, digest_size=16).digest()


def read(file: FoundFile) -> bytes | Skipped:
    """The content of a file, or why it cannot be read."""
    try:
        return Path(file.path).read_bytes()
    except OSError as error:
        return Skipped(file.shown, f"cannot be read: {error.strerror or error}")


def scan(file: FoundFile, content: bytes, handlers_named: bool, checks_all: bool) -> FileFacts:
    """What the text alone tells; the syntax is checked where the file matters, or where all are checked."""
    is_candidate = handlers_named or bool(_MAY_HAVE_HANDLERS.search(content))
    facts = FileFacts(
        digest_of(content),
        content.count(b"\n"),
        is_candidate=is_candidate,
        has_comments=MARK in content,
        bases=tuple(
            {part.split(b".")[-1].split(b"[")[0].strip().decode("ascii", "replace") for found in _CLASS.findall(content) for part in found.split(b",")}
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
