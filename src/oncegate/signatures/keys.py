"""The secrets and keys of Standard Webhooks: `whsec_` (HMAC), `whsk_` and `whpk_` (ed25519).

Must never show a secret: not in `repr`, not in an error, not by comparing it in varying time.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncegate.errors import BadSecret, ConfigError

if TYPE_CHECKING:
    from hashlib import _Hash

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as PrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey as PublicKey

SECRET_PREFIX: Final = "whsec_"
SIGNING_PREFIX: Final = "whsk_"
PUBLIC_PREFIX: Final = "whpk_"
SECRET_BYTES_MIN: Final = 24  # Standard Webhooks; shorter ones can be guessed
SECRET_BYTES_MAX: Final = 256  # more adds no strength: it is an HMAC key, not a document
SEED_BYTES: Final = 32
_BLOCK_BYTES: Final = 64  # of SHA-256
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_PIP_HINT: Final = "ed25519 keys need the cryptography package: pip install 'oncegate[sender]'"


class SigningKey(Protocol):
    """Something that signs: `version` is what its entries begin with."""

    @property
    def version(self) -> str:
        """`v1` or `v1a`."""

    def sign(self, content: bytes) -> bytes:
        """Signs the content."""


class VerifyingKey(Protocol):
    """Something that checks signatures of one version."""

    @property
    def version(self) -> str:
        """`v1` or `v1a`."""

    def checker(self, content: bytes) -> Callable[[bytes], bool]:
        """Prepares to check signatures of one content; the answer's time tells nothing of the key."""


def _begun(secret: bytes) -> tuple[_Hash, _Hash]:
    """The two hashes of HMAC (RFC 2104), begun with the secret: quicker to copy than the library's own."""
    block = (secret if len(secret) <= _BLOCK_BYTES else sha256(secret).digest()).ljust(_BLOCK_BYTES, b"\0")
    return sha256(block.translate(_INNER)), sha256(block.translate(_OUTER))


class HmacSecret:
    """A shared secret: signs and checks `v1` entries."""

    version = "v1"

    def __init__(self, secret: bytes) -> None:
        if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
            raise BadSecret(
                f"the secret has {len(secret)} bytes; give {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
            )
        self._secret = secret
        self._inner, self._outer = _begun(secret)

    @classmethod
    def parse(cls, text: str) -> HmacSecret:
        """Reads `whsec_` and base64."""
        return cls(_decode(text, SECRET_PREFIX))

    @classmethod
    def generate(cls) -> HmacSecret:
        """Makes a new secret of 32 random bytes."""
        return cls(secrets.token_bytes(32))

    def reveal(self) -> str:
        """The secret as text, to be shown once to the person who configures the other side."""
        return SECRET_PREFIX + base64.b64encode(self._secret).decode()

    def sign(self, content: bytes) -> bytes:
        """HMAC-SHA256 of the content."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        outer.update(inner.digest())
        return outer.digest()

    def checker(self, content: bytes) -> Callable[[bytes], bool]:
        """Computes the right signature once and compares in constant time."""
        expected = self.sign(content)
        return lambda given: hmac.compare_digest(expected, given)

    def __repr__(self) -> str:
        return "HmacSecret(…)"


class Ed25519SigningKey:
    """A private key: signs `v1a` entries."""

    version = "v1a"

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise BadSecret(f"an ed25519 seed has {SEED_BYTES} bytes, not {len(seed)}")
        self._seed = seed

    @classmethod
    def parse(cls, text: str) -> Ed25519SigningKey:
        """Reads `whsk_` and base64 of the seed, alone or with the public key behind it."""
        raw = _decode(text, SIGNING_PREFIX)
        key = cls(raw[:SEED_BYTES])
        if len(raw) != SEED_BYTES and raw[SEED_BYTES:] != key.public_key().raw:
            raise BadSecret("the public half of the ed25519 key does not belong to its private half")
        return key

    @classmethod
    def generate(cls) -> Ed25519SigningKey:
        """Makes a new key."""
        return cls(secrets.token_bytes(SEED_BYTES))

    def reveal(self) -> str:
        """The private key as text: seed and public key."""
        return SIGNING_PREFIX + base64.b64encode(self._seed + self.public_key().raw).decode()

    def public_key(self) -> Ed25519PublicKey:
        """The key that receivers check with."""
        return Ed25519PublicKey(self._private.public_key().public_bytes_raw())

    def sign(self, content: bytes) -> bytes:
        """The ed25519 signature of the content."""
        return self._private.sign(content)

    @cached_property
    def _private(self) -> PrivateKey:
        return _ed25519().Ed25519PrivateKey.from_private_bytes(self._seed)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return "Ed25519SigningKey(…)"


class Ed25519PublicKey:
    """A public key: checks `v1a` entries."""

    version = "v1a"

    def __init__(self, raw: bytes) -> None:
        if len(raw) != SEED_BYTES:
            raise BadSecret(f"an ed25519 public key has {SEED_BYTES} bytes, not {len(raw)}")
        self.raw = raw

    @classmethod
    def parse(cls, text: str) -> Ed25519PublicKey:
        """Reads `whpk_` and base64."""
        return cls(_decode(text, PUBLIC_PREFIX))

    @property
    def text(self) -> str:
        """The key as text; it is no secret."""
        return PUBLIC_PREFIX + base64.b64encode(self.raw).decode()

    def checker(self, content: bytes) -> Callable[[bytes], bool]:
        """Checks signatures of this content."""
        return lambda given: self._accepts(content, given)

    def _accepts(self, content: bytes, given: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            self._public.verify(given, content)
        except InvalidSignature:
            return False
        return True

    @cached_property
    def _public(self) -> PublicKey:
        return _ed25519().Ed25519PublicKey.from_public_bytes(self.raw)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Ed25519PublicKey({self.text!r})"


def read_signing_key(text: str) -> HmacSecret | Ed25519SigningKey:
    """Reads a `whsec_` secret or a `whsk_` private key."""
    if text.startswith(SIGNING_PREFIX):
        return Ed25519SigningKey.parse(text)
    return HmacSecret.parse(text)


def read_verifying_key(text: str) -> HmacSecret | Ed25519PublicKey:
    """Reads a `whsec_` secret or a `whpk_` public key."""
    if text.startswith(PUBLIC_PREFIX):
        return Ed25519PublicKey.parse(text)
    return HmacSecret.parse(text)


def _decode(text: str, prefix: str) -> bytes:
    if not text.startswith(prefix):
        raise BadSecret(f"the secret does not begin with {prefix}; write {prefix} and base64")
    given = text[len(prefix) :]
    try:
        raw = base64.b64decode(given, validate=True)
        is_exact = base64.b64encode(raw) == given.encode()  # the reader lets signs at the end pass
    except ValueError:
        is_exact = False
    if not is_exact:
        raise BadSecret(f"what follows {prefix} is not base64")
    return raw


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError(_PIP_HINT) from None
    return ed25519
