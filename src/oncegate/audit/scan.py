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
    rb"^[ \t]*(?:from|import)[ \t]+(?:celery|dramatiq|huey|rq|django_rq|arq|faststream|kafka|aiokafka"
    rb"|confluent_kafka|pika|aio_pika|nats|fastapi|flask"
    rb"|starlette|aiohttp|django|rest_framework|mcp|fastmcp|oncegate|kombu|taskiq|faust|chalice"
    rb"|functions_framework|quart|sanic|litestar|ninja"
    rb"|google\.cloud|boto3|tornado|bottle|azure)\b"
    rb"|receive_messages?\(|def \w+\((?:self, )?event\b|@\w+\.(?:post|put|patch|delete|route|api_route"
    rb"|task|tool|agent|action|subscriber)\b"
    rb"|xreadgroup\(|basic_consume\(|\.poll\(|acks_late|auto_commit|\.enqueue\(|def \w+\((?:ch"
    rb"|channel), method, prop"
    rb"|def (?:handle|on|process|consume|receive|dispatch)_\w+\(|def (?:consume|message_handler"
    rb"|event_handler|webhook_handler)\(",
    re.MULTILINE,
)
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


def scan(file: FoundFile, content: bytes, handlers_named: bool, checks_all: bool) -> FileFacts:
    """What the text alone tells; the syntax is checked where the file matters, or where all are checked."""
    is_candidate = handlers_named or bool(_MAY_HAVE_HANDLERS.search(content))
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
