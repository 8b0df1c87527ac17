"""Which keys a journal is verified by, as the environment says it, and which heads were kept outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from oncegate.journal.keys import Verifier, load_signers, load_verifiers
from oncegate.journal.publishing import HeadFolder, destinations_of
from oncegate.journal.tiles import read_state
from oncegate.journal.verifying import Verification, VerifyReport
from oncegate.store import Session

KEY_VARIABLE: Final = "ONCEGATE_JOURNAL_KEY"  # file:PATH, env:NAME or command:PROGRAM; two during rotation
HEADS_VARIABLE: Final = "ONCEGATE_JOURNAL_HEADS"  # file:FOLDER, log:, https://…
TRUST_VARIABLE: Final = "ONCEGATE_JOURNAL_TRUST"  # a verifier key, or a file of them
EXAMINED_MAX: Final = 200_000  # records that are checked in a second or two


def trusted_keys(given: str | None = None) -> tuple[Verifier, ...]:
    """The keys to verify by: those given, else ONCEGATE_JOURNAL_TRUST, else those of the signing key."""
    text = given or os.environ.get(TRUST_VARIABLE)
    if text:
        path = Path(text)
        return load_verifiers(path.read_text("utf-8") if path.exists() else text)
    key = os.environ.get(KEY_VARIABLE)
    return tuple(signer.verifier for signer in load_signers(key)) if key else ()


def published_heads() -> list[tuple[str, str]]:
    """The newest published head of each folder, and where it is."""
    text = os.environ.get(HEADS_VARIABLE)
    found = destinations_of(text, lambda url: lambda head: None) if text else []
    folders = [one for one in found if isinstance(one, HeadFolder)]
    return [(str(newest[0]), newest[1]) for one in folders if (newest := one.newest()) is not None]


def verify_briefly(session: Session, *, with_bodies: bool) -> VerifyReport | None:
    """Checks a journal that is not too long for a person who waits; None for one that is."""
    state, _ = read_state(session)
    if state is not None and state.size > EXAMINED_MAX:
        return None
    return Verification(
        session, trusted=trusted_keys(), heads=published_heads(), with_bodies=with_bodies
    ).run()
