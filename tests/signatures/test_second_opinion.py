"""Ours and the published verifier agree about every request, but for differences that are written down."""

from __future__ import annotations

import base64
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import standardwebhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from oncegate.errors import BadSecret, MalformedRequest, NotAuthentic
from oncegate.signatures import Ed25519SigningKey, Headers, HmacSecret, StandardWebhooks, sign
from tests.signatures.second_opinion import (
    NOW,
    SECRET,
    SECRET_BYTES,
    Case,
    Why,
    corpus,
    entry,
    reasons,
    standing_clock,
    they_accept,
    we_accept,
)
from tests.support.properties import tried

GUIDE = Path(__file__).parents[2] / "docs" / "signatures.md"
BODY = b'{"a":1}'
RIGHT = entry("msg_1", str(NOW), BODY)
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the group of ed25519

# What the Standard Webhooks project publishes in the tests of its libraries: one message, signed both ways.
PUBLISHED_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
PUBLISHED_AT = 1_614_265_330
PUBLISHED_BODY = b'{"test": 2432232314}'
PUBLISHED_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PUBLISHED_V1 = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
PUBLISHED_PRIVATE = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="
PUBLISHED_V1A = (
    "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (HmacSecret.parse(PUBLISHED_SECRET), PUBLISHED_V1),
        (Ed25519SigningKey.parse(PUBLISHED_PRIVATE), PUBLISHED_V1A),
    ],
    ids=["v1", "v1a"],
)
def test_the_published_message_is_signed_as_published(key, expected: str) -> None:
    headers = dict(sign([key], PUBLISHED_ID, PUBLISHED_AT, PUBLISHED_BODY))
    assert headers["webhook-signature"] == expected


@pytest.mark.parametrize("off", [-300, 0, 300])
def test_the_published_signatures_are_accepted_for_five_minutes(off: int) -> None:
    public = Ed25519SigningKey.parse(PUBLISHED_PRIVATE).public_key()
    for secret, right in ((PUBLISHED_SECRET, PUBLISHED_V1), (public, PUBLISHED_V1A)):
        wrong = right[:-4] + "AAA="
        for signature in (right, f"{wrong} v2,AAAA {right} {wrong}"):
            headers = _published(signature)
            StandardWebhooks([secret]).verify(Headers(headers), PUBLISHED_BODY, PUBLISHED_AT + off)


def _published(signature: str, **changes: str) -> dict[str, str]:
    headers = {
        "webhook-id": PUBLISHED_ID,
        "webhook-timestamp": str(PUBLISHED_AT),
        "webhook-signature": signature,
    }
    return {**headers, **{name.replace("_", "-"): value for name, value in changes.items()}}


@pytest.mark.parametrize("off", [-301, 301])
def test_the_published_signature_is_refused_before_and_after(off: int) -> None:
    with pytest.raises(NotAuthentic):
        StandardWebhooks([PUBLISHED_SECRET]).verify(
            Headers(_published(PUBLISHED_V1)), PUBLISHED_BODY, PUBLISHED_AT + off
        )


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        (_published(PUBLISHED_V1, webhook_id=""), MalformedRequest),
        (_published(PUBLISHED_V1, webhook_timestamp=""), MalformedRequest),
        (_published(PUBLISHED_V1, webhook_timestamp="hello"), MalformedRequest),
        (_published(""), MalformedRequest),
        (_published("v1,"), NotAuthentic),
        (_published(PUBLISHED_V1[:8]), NotAuthentic),
        (_published("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA="), NotAuthentic),
        (_published("v1,dawfeoifkpqwoekfpqoekf"), NotAuthentic),
        (_published("v1a,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="), NotAuthentic),
        (_published(PUBLISHED_V1, webhook_timestamp="946684800"), NotAuthentic),
    ],
)
def test_what_the_project_refuses_in_its_own_tests_is_refused(headers, refusal) -> None:
    with pytest.raises(refusal):
        StandardWebhooks([PUBLISHED_SECRET]).verify(Headers(headers), PUBLISHED_BODY, PUBLISHED_AT)


@pytest.mark.slow
def test_both_verifiers_agree_about_changed_requests_or_the_difference_is_a_known_one() -> None:
    """Given good requests changed in any part; then both accept, both refuse, or it is written why not.

    That every verdict came up often says that the requests are worth asking about (I21).
    """
    verdicts: Counter[tuple[bool, bool]] = Counter()
    unexplained = []
    for case in corpus(seed=5, count=20_000):
        ours, theirs = we_accept(case), they_accept(case)
        verdicts[ours, theirs] += 1
        if ours != theirs and not reasons(case, ours=ours):
            unexplained.append((ours, case))
    assert unexplained == []
    assert len(verdicts) == 4
    assert min(verdicts.values()) >= 500, verdicts


_FRACTION = str(NOW) + ".5"
_STRANGE = b"\xff"
_DIFFERENCES = [
    (Why.STRANGE_ID, False, Case("a.1", str(NOW), entry("a.1", str(NOW), BODY), BODY)),
    (Why.STRANGE_TIMESTAMP, False, Case("msg_1", _FRACTION, RIGHT, BODY)),
    (Why.LEADING_ZEROS, False, Case("msg_1", f"0{NOW}", RIGHT, BODY)),
    (Why.LEADING_ZEROS, True, Case("msg_1", f"0{NOW}", entry("msg_1", f"0{NOW}", BODY), BODY)),
    (Why.LOOSE_BASE64, False, Case("msg_1", str(NOW), RIGHT.replace(",", ",*"), BODY)),
    (Why.NINTH_ENTRY, False, Case("msg_1", str(NOW), "v1,AAAA " * 8 + RIGHT, BODY)),
    (Why.SPACES, True, Case(" msg_1", str(NOW), RIGHT, BODY)),
    (Why.SPACES, False, Case("msg_1 ", str(NOW), entry("msg_1 ", str(NOW), BODY), BODY)),
    (Why.STRANGE_BODY, True, Case("msg_1", str(NOW), entry("msg_1", str(NOW), _STRANGE), _STRANGE)),
    (Why.UNREADABLE_ENTRY, True, Case("msg_1", str(NOW), f"v1 {RIGHT}", BODY)),
]


@pytest.mark.parametrize(
    ("why", "ours", "case"), _DIFFERENCES, ids=lambda value: getattr(value, "name", "")
)
def test_every_known_difference_is_one(why: Why, ours: bool, case: Case) -> None:
    """Given the smallest request for each reason; then exactly one side accepts it, for that reason."""
    assert (we_accept(case), they_accept(case)) == (ours, not ours)
    assert reasons(case, ours=ours) == {why}


def test_the_guide_lists_every_difference() -> None:
    assert {why for why, _, _ in _DIFFERENCES} == set(Why)
    text = GUIDE.read_text()
    assert [why.value for why in Why if f"| {why.value} |" not in text] == []


@tried(80)
@example("{0}=", bytes(39))  # whole groups, and a sign too many
@given(
    change=st.sampled_from(
        ["{0}", "{1}", "{0}=", "{0}==", "whsec_{0}", "whpk_{0}", "{0}é", " {0}", "{0}\n"]
    ),
    secret=st.binary(max_size=64),
)
def test_a_secret_that_we_take_is_the_same_to_the_published_package(change: str, secret: bytes) -> None:
    """Given a secret in any spelling; when we take it both sign alike; we take no short or loose one."""
    text = base64.b64encode(secret).decode()
    spelled = "whsec_" + change.format(text, text.rstrip("="))
    if not 24 <= len(secret) <= 256 or spelled != f"whsec_{text}":
        with pytest.raises(BadSecret) as refused:
            HmacSecret.parse(spelled)
        assert len(text) < 5 or text not in str(refused.value)
        return
    ours = HmacSecret.parse(spelled)
    theirs = standardwebhooks.Webhook(spelled).sign("msg_1", datetime.fromtimestamp(NOW, UTC), "{}")
    assert dict(sign([ours], "msg_1", NOW, b"{}"))["webhook-signature"] == theirs


def test_a_secret_without_its_prefix_is_taken_by_the_published_package_alone() -> None:
    bare = SECRET.removeprefix("whsec_")
    with standing_clock():
        standardwebhooks.Webhook(bare).verify(BODY, Case("msg_1", str(NOW), RIGHT, BODY).headers)
    with pytest.raises(BadSecret, match="whsec_"):
        HmacSecret.parse(bare)
    assert HmacSecret(SECRET_BYTES).reveal() == SECRET


# --- v1a: the published package has none, so that the second opinion is that of `cryptography` ---


@tried(80)
@given(
    seed=st.binary(min_size=32, max_size=32),
    body=st.binary(max_size=60),
    flipped=st.integers(-1, 64 * 8 - 1),
    other_body=st.booleans(),
)
def test_an_ed25519_signature_is_judged_as_cryptography_judges_it(
    seed: bytes, body: bytes, flipped: int, other_body: bool
) -> None:
    """Given a signature with any bit turned, or none, over this or another body; then both say the same."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    signature = bytearray(key.sign(f"msg_1.{NOW}.".encode() + body))
    if flipped >= 0:
        signature[flipped // 8] ^= 1 << flipped % 8
    content = body + b" " if other_body else body
    assert _we_accept_v1a(key, bytes(signature), content) == _they_accept_v1a(
        key, bytes(signature), content
    )


def _we_accept_v1a(key: Ed25519PrivateKey, signature: bytes, body: bytes) -> bool:
    public = "whpk_" + base64.b64encode(key.public_key().public_bytes_raw()).decode()
    headers = Case("msg_1", str(NOW), "v1a," + base64.b64encode(signature).decode(), body).headers
    try:
        StandardWebhooks([public]).verify(Headers(headers), body, NOW)
    except NotAuthentic:
        return False
    return True


def _they_accept_v1a(key: Ed25519PrivateKey, signature: bytes, body: bytes) -> bool:
    try:
        key.public_key().verify(signature, f"msg_1.{NOW}.".encode() + body)
    except InvalidSignature:
        return False
    return True


def test_a_second_signature_made_from_the_first_is_refused() -> None:
    """Given a signature whose second half is larger by the order of the group, which means the same."""
    key = Ed25519PrivateKey.from_private_bytes(b"e" * 32)
    signature = key.sign(f"msg_1.{NOW}.".encode() + BODY)
    larger = int.from_bytes(signature[32:], "little") + ORDER
    assert _we_accept_v1a(key, signature, BODY)
    assert not _we_accept_v1a(key, signature[:32] + larger.to_bytes(32, "little"), BODY)
