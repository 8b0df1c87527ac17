"""The keys that sign heads, snapshots and plans: Ed25519, from a file, a variable or a program.

The text forms are those of C2SP signed notes: `name+id+base64` for a verifier, and `PRIVATE+KEY+` before it
for a signer. Must never show a private key: not in `repr`, not in an error.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shlex
import stat
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol

from oncegate.errors import BadSecret, ConfigError

PRIVATE_PREFIX: Final = "PRIVATE+KEY+"
ED25519: Final = b"\x01"  # the signature type of C2SP
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
COMMAND_SECONDS_MAX: Final = 30
_PIP_HINT: Final = "signed journals need the cryptography package: pip install 'oncegate[journal]'"
_NAME: Final = re.compile(r"[^\s+\x00-\x1f]{1,200}")
_NEXT_SIGNER: Final = re.compile(r",\s*(?=(?:file|env|command):)")


class Signer(Protocol):
    """A private key with a name."""

    @property
    def name(self) -> str:
        """The name in the signature line."""

    @property
    def key_id(self) -> bytes:
        """The four bytes that tell keys of one name apart."""

    @property
    def verifier(self) -> Verifier:
        """The public half."""

    def sign(self, message: bytes) -> bytes:
        """The Ed25519 signature of the message."""


class Verifier:
    """A public key with a name: checks signatures."""

    def __init__(self, name: str, raw: bytes) -> None:
        if not _NAME.fullmatch(name):
            raise BadSecret(f"{name[:40]!r} cannot name a key; leave out spaces and plus signs")
        if len(raw) != KEY_BYTES:
            raise BadSecret(f"an ed25519 public key has {KEY_BYTES} bytes, not {len(raw)}")
        self.name = name
        self.raw = raw
        self.key_id = sha256(name.encode() + b"\n" + ED25519 + raw).digest()[:4]

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Reads `name+id+base64`."""
        name, _, rest = text.strip().partition("+")
        key_id, _, encoded = rest.partition("+")
        raw = _decode(encoded)
        if raw[:1] != ED25519:
            raise BadSecret("a verifier key is name+id+base64 of an ed25519 key; copy it again")
        found = cls(name, raw[1:])
        if key_id != found.key_id.hex():
            raise BadSecret(f"the id of verifier key {name[:40]!r} is not its own; copy it again")
        return found

    @property
    def text(self) -> str:
        """The key as text; it is no secret."""
        return f"{self.name}+{self.key_id.hex()}+{base64.b64encode(ED25519 + self.raw).decode()}"

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether the signature is this key's for the message."""
        ed25519 = _ed25519()
        from cryptography.exceptions import InvalidSignature

        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def __repr__(self) -> str:
        return f"Verifier({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verifier) and (self.name, self.raw) == (other.name, other.raw)

    def __hash__(self) -> int:
        return hash((self.name, self.raw))


class PrivateKey:
    """A signer whose key is in this process."""

    def __init__(self, name: str, seed: bytes) -> None:
        if len(seed) != KEY_BYTES:
            raise BadSecret(f"an ed25519 seed has {KEY_BYTES} bytes, not {len(seed)}")
        self._seed = seed
        self._key = _ed25519().Ed25519PrivateKey.from_private_bytes(seed)
        self.verifier = Verifier(name, self._key.public_key().public_bytes_raw())
        self.name, self.key_id = name, self.verifier.key_id

    @classmethod
    def generate(cls, name: str) -> PrivateKey:
        """Makes a new key."""
        return cls(name, secrets.token_bytes(KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> PrivateKey:
        """Reads `PRIVATE+KEY+name+id+base64`."""
        text = text.strip()
        if not text.startswith(PRIVATE_PREFIX):
            raise BadSecret(
                f"a signing key begins with {PRIVATE_PREFIX}; make one: oncegate journal keygen"
            )
        name, _, rest = text[len(PRIVATE_PREFIX) :].partition("+")
        key_id, _, encoded = rest.partition("+")
        raw = _decode(encoded)
        if raw[:1] != ED25519:
            raise BadSecret("the signing key is not an ed25519 key of `oncegate journal keygen`")
        found = cls(name, raw[1:])
        if key_id != found.key_id.hex():
            raise BadSecret("the id of the signing key does not belong to its key; copy it again")
        return found

    def reveal(self) -> str:
        """The private key as text."""
        encoded = base64.b64encode(ED25519 + self._seed).decode()
        return f"{PRIVATE_PREFIX}{self.name}+{self.key_id.hex()}+{encoded}"

    def sign(self, message: bytes) -> bytes:
        """The Ed25519 signature of the message."""
        return self._key.sign(message)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"PrivateKey({self.name!r}, …)"


class SigningCommand:
    """A signer that is a program, for keys that never leave a key management service.

    `PROGRAM verifier` prints the verifier key. `PROGRAM sign` reads the message from its input and prints
    the signature in base64. Each signature is checked before it is used.
    """

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command)
        if not self._words:
            raise ConfigError("command: names no program; write command:/path/of/program")
        self.verifier = Verifier.parse(self._run("verifier", b"").decode("utf-8", "replace"))
        self.name, self.key_id = self.verifier.name, self.verifier.key_id

    def sign(self, message: bytes) -> bytes:
        """What the program signs, checked."""
        signature = _decode(self._run("sign", message).decode("ascii", "replace").strip())
        if len(signature) != SIGNATURE_BYTES or not self.verifier.verify(message, signature):
            raise ConfigError(f"{self._words[0]} sign: the signature does not fit its own verifier key")
        return signature

    def _run(self, word: str, given: bytes) -> bytes:
        try:
            done = subprocess.run(
                [*self._words, word],
                input=given,
                capture_output=True,
                timeout=COMMAND_SECONDS_MAX,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(f"the signing program failed: {error}; try it with {word!r}") from None
        return done.stdout


def load_signer(where: str) -> Signer:
    """Reads the key at `file:PATH`, `env:NAME` or `command:PROGRAM`."""
    kind, _, rest = where.strip().partition(":")
    match kind:
        case "file" if rest:
            return PrivateKey.parse(_read_private(Path(rest)))
        case "env" if rest:
            text = os.environ.get(rest)
            if not text:
                raise ConfigError(f"{rest} is not set; it should hold the journal's signing key")
            return PrivateKey.parse(text)
        case "command":
            return SigningCommand(rest)
    raise ConfigError("a signing key is file:PATH, env:NAME or command:PROGRAM")


def load_signers(where: str) -> tuple[Signer, ...]:
    """Reads one key, or several with commas between them: all of them sign while a key is replaced."""
    return tuple(load_signer(part) for part in _NEXT_SIGNER.split(where))


def load_verifiers(text: str) -> tuple[Verifier, ...]:
    """Reads verifier keys, one a line; empty lines and lines with # are passed over."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(Verifier.parse(line) for line in lines if line and not line.startswith("#"))


def write_private(path: Path, key: PrivateKey) -> None:
    """Writes a new key file that only its owner reads; an existing file is never replaced."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot make {path}: {error.strerror}; name a new file") from None
    with os.fdopen(handle, "w") as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the umask says
        file.write(key.reveal() + "\n")
        file.flush()
        os.fsync(file.fileno())


def _read_private(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(4096)
    except OSError as error:
        raise ConfigError(f"cannot read the signing key {path}: {error.strerror}") from None
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"others may read the signing key {path}: chmod 600 {shlex.quote(str(path))}")
    return text.decode("utf-8", "replace")


def _decode(encoded: str) -> bytes:
    try:
        raw = base64.b64decode(encoded, validate=True)
        is_exact = base64.b64encode(raw) == encoded.encode()
    except ValueError:
        is_exact = False
    if not is_exact:
        raise BadSecret("the end of the key or signature is not base64; copy it again")
    return raw


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError(_PIP_HINT) from None
    return ed25519
