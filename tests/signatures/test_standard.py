"""Standard Webhooks: each row of the hostile-input table, rotation, the published verifier, a fuzz."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from oncegate.clock import SystemClock
from oncegate.errors import BadSecret, ConfigError, MalformedRequest, NotAuthentic
from oncegate.signatures import Ed25519SigningKey, Headers, HmacSecret, StandardWebhooks, sign

NOW = 1_700_000_000
SECRET = HmacSecret(b"s" * 32)
OTHER = HmacSecret(b"o" * 32)
PAIR = Ed25519SigningKey(b"e" * 32)
BODY = b'{"a":1}'
SCHEME = StandardWebhooks([SECRET])


def signed(body: bytes = BODY, message_id: str = "msg_1", at: int = NOW, **changes: str) -> dict[str, str]:
    """The headers of a good request, some of them replaced; an empty one is as good as missing."""
    changed = {name.replace("_", "-"): value for name, value in changes.items()}
    return {**dict(sign([SECRET], message_id, at, body)), **changed}


def entry_of(signature: bytes, version: str = "v1") -> str:
    return f"{version},{base64.b64encode(signature).decode()}"


def good_entry() -> str:
    return signed()["webhook-signature"]


def verify(headers: dict[str, str], body: bytes = BODY, scheme: StandardWebhooks = SCHEME) -> str | None:
    return scheme.verify(Headers(headers), body, NOW).message_id


def test_a_signed_request_is_authentic() -> None:
    found = SCHEME.verify(Headers(signed()), BODY, NOW)
    assert (found.message_id, found.sent_at_s) == ("msg_1", NOW)


def as_svix(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("webhook-", "svix-"): value for name, value in headers.items()}


def test_the_same_headers_under_the_names_of_svix_are_taken() -> None:
    found = SCHEME.verify(Headers(as_svix(signed())), BODY, NOW)
    assert (found.message_id, found.sent_at_s) == ("msg_1", NOW)


def test_a_forged_request_under_the_names_of_svix_is_not_authentic() -> None:
    for forged in (signed(b"another"), signed(webhook_id="msg_2"), signed(at=NOW - 301)):
        with pytest.raises(NotAuthentic):
            verify(as_svix(forged))


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_headers_of_the_two_prefixes_are_never_mixed(name: str) -> None:
    """An id of one prefix with a signature of the other could be signed by two senders."""
    mixed = signed()
    mixed[name.replace("webhook-", "svix-")] = mixed.pop(name)
    with pytest.raises(MalformedRequest):
        verify(mixed)


def test_where_both_prefixes_are_there_the_standard_one_counts() -> None:
    assert verify({**as_svix(signed(message_id="msg_2")), **signed()}) == "msg_1"
    with pytest.raises(NotAuthentic):
        verify({**as_svix(signed()), **signed(b"another")})


@pytest.mark.parametrize("length", [24, 63, 64, 65, 256])
def test_a_secret_of_any_length_signs_as_the_library_does(length: int) -> None:
    """Secrets longer than a block of the hash are hashed first."""
    secret = bytes(number % 251 for number in range(length))
    for content in (b"", b"c", b"c" * 1000):
        assert HmacSecret(secret).sign(content) == hmac.digest(secret, content, "sha256")


def test_header_names_are_read_in_any_case_and_as_bytes() -> None:
    pairs = [(name.title().encode(), value.encode()) for name, value in signed().items()]
    assert SCHEME.verify(Headers(pairs), BODY, NOW).message_id == "msg_1"


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_empty_or_repeated_header_is_malformed(name: str) -> None:
    headers = signed()
    for bad in (
        [(key, value) for key, value in headers.items() if key != name],
        [*((key, value) for key, value in headers.items() if key != name), (name, "")],
        [*headers.items(), (name, headers[name])],
    ):
        with pytest.raises(MalformedRequest, match=name):
            SCHEME.verify(Headers(bad), BODY, NOW)


@pytest.mark.parametrize(
    "text", ["", "1.5", "-1", "+1700000000", "1e9", "\uff11\uff17", "1" * 13, "0x10", "nan", "1_0"]
)
def test_a_timestamp_of_anything_but_ascii_digits_is_malformed(text: str) -> None:
    with pytest.raises(MalformedRequest, match="webhook-timestamp"):
        verify(signed(webhook_timestamp=text))


@pytest.mark.parametrize(("off", "is_good"), [(-300, True), (300, True), (-301, False), (301, False)])
def test_a_timestamp_counts_for_five_minutes_either_way(off: int, is_good: bool) -> None:
    headers = signed(at=NOW + off)
    if is_good:
        assert verify(headers) == "msg_1"
        return
    with pytest.raises(NotAuthentic, match="from now"):
        verify(headers)


def test_leading_zeros_of_a_timestamp_are_signed_as_they_came() -> None:
    zeros = f"00{NOW}"
    entry = entry_of(SECRET.sign(f"msg_1.{zeros}.".encode() + BODY))
    assert verify(signed(webhook_timestamp=zeros, webhook_signature=entry)) == "msg_1"
    with pytest.raises(NotAuthentic):
        verify(signed(webhook_timestamp=zeros))


@pytest.mark.parametrize(
    "bad", ["a.b", "a\x00b", "a\nb", "a\x7fb", "café", "x" * 256, "\u202eid", "\ud800"]
)
def test_an_id_that_could_be_read_in_two_ways_is_malformed(bad: str) -> None:
    with pytest.raises(MalformedRequest, match="webhook-id"):
        verify(signed(webhook_id=bad))


def test_an_id_of_255_characters_is_taken() -> None:
    assert verify(signed(message_id="x" * 255)) == "x" * 255


def test_a_signed_id_with_a_full_stop_is_refused_although_its_signature_is_right() -> None:
    """`a.1700000000` + `5` would be signed by the same bytes as `a` + `1700000000` + `5.…`."""
    with pytest.raises(MalformedRequest):
        verify(signed(message_id="a.1"))


@pytest.mark.parametrize(
    "bad",
    [
        "v1",
        "v1,",
        "v1,###",
        "v1,é",
        "v1,\ud800",
        ",",
        ",,,,",
        "v2," + "A" * 44,
        "V1,AAAA",
        "v1," + "A" * 5000,
        "v1,AAAA",
        entry_of(b"x" * 31),
        entry_of(b"x" * 33),
        entry_of(b"x" * 64),
        entry_of(b"x" * 32, "v1a"),
    ],
)
def test_a_malformed_entry_is_skipped(bad: str) -> None:
    with pytest.raises(NotAuthentic):
        verify(signed(webhook_signature=bad))
    assert verify(signed(webhook_signature=f"{bad} {good_entry()}")) == "msg_1"
    assert verify(signed(webhook_signature=f"{good_entry()} {bad}")) == "msg_1"


def test_only_the_first_eight_entries_are_looked_at() -> None:
    bad = entry_of(b"x" * 32)
    assert verify(signed(webhook_signature=" ".join([bad] * 7 + [good_entry()]))) == "msg_1"
    with pytest.raises(NotAuthentic):
        verify(signed(webhook_signature=" ".join([bad] * 8 + [good_entry()])))


def test_every_entry_is_compared_with_every_key_even_after_a_match(monkeypatch) -> None:
    """Given two keys and three entries, the first of them right; when checked, six comparisons are made."""
    compared = []
    real = hmac.compare_digest

    def noted(ours: bytes, given: bytes) -> bool:
        compared.append(given)
        return real(ours, given)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    header = " ".join([good_entry(), entry_of(b"x" * 32), entry_of(b"y" * 32)])

    verify(signed(webhook_signature=header), scheme=StandardWebhooks([SECRET, OTHER]))

    assert len(compared) == 6


def test_another_body_id_time_or_secret_is_not_authentic() -> None:
    for headers, body, scheme in (
        (signed(), b'{"a":2}', SCHEME),
        (signed(webhook_id="msg_2"), BODY, SCHEME),
        (signed(webhook_timestamp=str(NOW + 1)), BODY, SCHEME),
        (signed(), BODY, StandardWebhooks([OTHER])),
    ):
        with pytest.raises(NotAuthentic):
            verify(headers, body, scheme)


def test_while_a_secret_is_rotated_both_sides_may_go_first() -> None:
    """The sender signs with both; a receiver with either, or with both, accepts."""
    both = dict(sign([SECRET, OTHER], "msg_1", NOW, BODY))
    for scheme in (SCHEME, StandardWebhooks([OTHER]), StandardWebhooks([OTHER, SECRET])):
        assert verify(both, scheme=scheme) == "msg_1"
    assert verify(signed(), scheme=StandardWebhooks([OTHER, SECRET])) == "msg_1"


def test_ed25519_entries_are_checked_with_the_public_key() -> None:
    headers = dict(sign([SECRET, PAIR], "msg_1", NOW, BODY))
    public = StandardWebhooks([PAIR.public_key().text])
    assert headers["webhook-signature"].split(" ")[1].startswith("v1a,")
    assert verify(headers, scheme=public) == "msg_1"
    with pytest.raises(NotAuthentic):
        verify(headers, b"{}", public)
    with pytest.raises(NotAuthentic):
        verify(signed(), scheme=public)


def test_keys_read_back_from_their_texts() -> None:
    assert HmacSecret.parse(SECRET.reveal()).sign(b"x") == SECRET.sign(b"x")
    assert Ed25519SigningKey.parse(PAIR.reveal()).sign(b"x") == PAIR.sign(b"x")
    seed_only = "whsk_" + base64.b64encode(b"e" * 32).decode()
    assert Ed25519SigningKey.parse(seed_only).reveal() == PAIR.reveal()
    assert HmacSecret.generate().reveal() != HmacSecret.generate().reveal()
    assert Ed25519SigningKey.generate().reveal() != Ed25519SigningKey.generate().reveal()


def test_a_key_of_a_known_keypair_signs_as_others_do() -> None:
    """The first test vector of RFC 8032: an empty message."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = Ed25519SigningKey(seed)
    assert key.public_key().raw.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert (
        key.sign(b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555")
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("secret", "whsec_"),
        ("whsec_###", "base64"),
        ("whsec_" + base64.b64encode(b"s" * 23).decode(), "23 bytes"),
        ("whsec_" + base64.b64encode(b"s" * 257).decode(), "257 bytes"),
        ("whpk_AAAA", "3"),
        ("", "whsec_"),
    ],
)
def test_a_bad_secret_is_refused_without_being_shown(text: str, why: str) -> None:
    with pytest.raises(BadSecret, match=why) as refused:
        StandardWebhooks([text])
    assert text[6:] not in str(refused.value) or not text[6:]


def test_a_private_key_with_a_strange_public_half_is_refused() -> None:
    text = "whsk_" + base64.b64encode(b"e" * 32 + b"f" * 32).decode()
    with pytest.raises(BadSecret, match="does not belong"):
        Ed25519SigningKey.parse(text)


@pytest.mark.parametrize("secrets", [[], ["whsec_"] * 9, "whsec_abc"])
def test_secrets_are_a_list_of_one_to_eight(secrets) -> None:
    with pytest.raises(ConfigError, match="1 to 8"):
        StandardWebhooks(secrets)


def test_a_webhook_is_signed_with_one_to_eight_keys() -> None:
    for keys in ([], [SECRET] * 9):
        with pytest.raises(BadSecret, match="1 to 8"):
            sign(keys, "msg_1", NOW, BODY)


def test_no_secret_is_shown_by_repr() -> None:
    shown = f"{SECRET!r} {PAIR!r} {SCHEME!r}"
    assert "ssss" not in shown
    assert base64.b64encode(b"s" * 32).decode()[:8] not in shown
    assert base64.b64encode(b"e" * 32).decode()[:8] not in shown


@given(body=st.text(), message_id=st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True))
def test_the_published_verifier_signs_as_we_do(body: str, message_id: str) -> None:
    """The published package is the oracle: its signature is ours, whatever is signed."""
    oracle = standardwebhooks.Webhook(SECRET.reveal())
    theirs = oracle.sign(message_id, datetime.fromtimestamp(NOW, UTC), body)
    ours = dict(sign([SECRET], message_id, NOW, body.encode()))
    assert ours["webhook-signature"] == theirs


def test_the_published_verifier_accepts_what_we_sign() -> None:
    at = SystemClock().wall_ms() // 1000  # the package reads the wall clock itself
    headers = dict(sign([OTHER, SECRET], "msg_1", at, BODY))
    assert standardwebhooks.Webhook(SECRET.reveal()).verify(BODY, headers) == {"a": 1}


_ANY = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        ["v1,", "v1a,", "v1", ",", " ", "v1,AAAA", "9" * 12, str(NOW), "msg_1", "\ud800", "\x00"]
    ),
    st.binary(max_size=60),
)
_NAME = st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "Webhook-Id", "x"])


@pytest.mark.slow
@given(pairs=st.lists(st.tuples(_NAME, _ANY), max_size=8), body=st.binary(max_size=50))
def test_no_request_raises_anything_but_a_refusal(pairs, body: bytes) -> None:
    """Hostile headers and bodies are refused with a status."""
    scheme = StandardWebhooks([SECRET, PAIR.public_key()])
    with pytest.raises((MalformedRequest, NotAuthentic)) as refused:
        scheme.verify(Headers(pairs), body, NOW)
    assert refused.value.status in (400, 401)


@pytest.mark.slow
@given(given_entries=st.lists(_ANY.filter(lambda value: isinstance(value, str)), max_size=7))
def test_a_good_entry_counts_among_any_others(given_entries) -> None:
    others = [entry.replace(" ", "") for entry in given_entries]
    assert verify(signed(webhook_signature=" ".join([*others, good_entry()]))) == "msg_1"
