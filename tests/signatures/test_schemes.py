"""GitHub-style, Stripe-style and bearer checks: what they accept, refuse, and never raise."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import ConfigError, MalformedRequest, NotAuthentic
from oncegate.signatures import BearerToken, GithubSignature, Headers, Scheme, StripeSignature

NOW = 1_700_000_000
SECRET = "a secret of people's choice"
BODY = b'{"id":"evt_1"}'


def hex_of(content: bytes, secret: str = SECRET) -> str:
    return hmac.digest(secret.encode(), content, "sha256").hex()


def test_github_signature_over_the_body_is_authentic() -> None:
    scheme = GithubSignature(["an older secret of theirs", SECRET])
    found = scheme.verify(Headers({"X-Hub-Signature-256": f"sha256={hex_of(BODY)}"}), BODY, NOW)
    assert (found.message_id, found.sent_at_s) == (None, None)


def test_githubs_own_example_is_authentic() -> None:
    """The example of GitHub's documentation."""
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    scheme = GithubSignature(["It's a Secret to Everybody"])
    scheme.verify(Headers({"X-Hub-Signature-256": signature}), b"Hello, World!", NOW)


@pytest.mark.parametrize(
    "bad",
    ["sha256=", "sha1=" + "0" * 40, "sha256=" + "0" * 64, "0" * 64, "sha256=" + "Z" * 64, "sha256=\ud800"],
)
def test_any_other_github_signature_is_not_authentic(bad: str) -> None:
    with pytest.raises(NotAuthentic):
        GithubSignature([SECRET]).verify(Headers({"x-hub-signature-256": bad}), BODY, NOW)


def stripe(at: int | str = NOW, *signatures: str) -> Headers:
    content = f"{at}.".encode() + BODY
    parts = [f"t={at}", *(f"v1={s}" for s in (signatures or (hex_of(content),)))]
    return Headers({"Stripe-Signature": ",".join(parts)})


def test_stripe_signature_over_time_and_body_is_authentic() -> None:
    scheme = StripeSignature([SECRET])
    assert scheme.verify(stripe(), BODY, NOW).sent_at_s == NOW
    right = hex_of(f"{NOW}.".encode() + BODY)
    assert scheme.verify(stripe(NOW, "0" * 64, right), BODY, NOW).sent_at_s == NOW


def test_stripe_signatures_beyond_the_eighth_are_not_looked_at() -> None:
    right = hex_of(f"{NOW}.".encode() + BODY)
    StripeSignature([SECRET]).verify(stripe(NOW, *["0" * 64] * 7, right), BODY, NOW)
    with pytest.raises(NotAuthentic):
        StripeSignature([SECRET]).verify(stripe(NOW, *["0" * 64] * 8, right), BODY, NOW)


@pytest.mark.parametrize("off", [-301, 301])
def test_a_stripe_time_that_is_not_about_now_is_not_authentic(off: int) -> None:
    with pytest.raises(NotAuthentic, match="from now"):
        StripeSignature([SECRET]).verify(stripe(NOW + off), BODY, NOW)


@pytest.mark.parametrize("text", ["v1=00", f"t={NOW},t={NOW},v1=00", "t=1.5,v1=00", "t=,v1=00", "=,=,="])
def test_a_stripe_header_without_one_plain_time_is_malformed(text: str) -> None:
    with pytest.raises(MalformedRequest):
        StripeSignature([SECRET]).verify(Headers({"stripe-signature": text}), BODY, NOW)


def test_a_known_bearer_token_is_authentic() -> None:
    scheme = BearerToken([SECRET.replace(" ", "-"), "another-token-of-theirs"])
    for token in ("another-token-of-theirs", SECRET.replace(" ", "-")):
        scheme.verify(Headers({"Authorization": f"Bearer {token}"}), BODY, NOW)
    scheme.verify(Headers({"Authorization": "bearer another-token-of-theirs"}), BODY, NOW)


@pytest.mark.parametrize(
    "bad",
    ["Bearer", "Bearer x", "Basic another-token-of-theirs", "another-token-of-theirs", "Bearer \ud800"],
)
def test_any_other_authorization_is_not_authentic(bad: str) -> None:
    with pytest.raises(NotAuthentic):
        BearerToken(["another-token-of-theirs"]).verify(Headers({"authorization": bad}), BODY, NOW)


@pytest.mark.parametrize("kind", [GithubSignature, StripeSignature, BearerToken])
def test_short_secrets_are_refused_and_none_are_shown(kind) -> None:
    with pytest.raises(ConfigError, match="16 bytes"):
        kind(["short"])
    with pytest.raises(ConfigError, match="1 to 8"):
        kind([])
    assert "choice" not in repr(kind([SECRET]))


@pytest.mark.parametrize("kind", [GithubSignature, StripeSignature, BearerToken])
def test_a_missing_header_is_malformed(kind) -> None:
    with pytest.raises(MalformedRequest, match="missing"):
        kind([SECRET]).verify(Headers({}), BODY, NOW)


_SCHEMES: list[tuple[str, Scheme]] = [
    ("x-hub-signature-256", GithubSignature([SECRET])),
    ("stripe-signature", StripeSignature([SECRET])),
    ("authorization", BearerToken([SECRET])),
]


@given(
    which=st.sampled_from(_SCHEMES),
    value=st.one_of(st.text(max_size=80), st.binary(max_size=80), st.from_regex(r"t=[0-9]{1,12},v1=.*")),
    body=st.binary(max_size=50),
)
def test_no_request_raises_anything_but_a_refusal(which, value, body: bytes) -> None:
    name, scheme = which
    with pytest.raises((MalformedRequest, NotAuthentic)):
        scheme.verify(Headers([(name, value)]), body, NOW)
