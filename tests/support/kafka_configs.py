"""A broker that answers what an administrator asks about a topic: librdkafka's mock has no controller.

It speaks versions 0 of ApiVersions and DescribeConfigs and version 1 of Metadata, over one port.
"""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

API_VERSIONS, METADATA, DESCRIBE_CONFIGS = 18, 3, 32
UNSUPPORTED_VERSION: Final = 35


@contextmanager
def broker_with_configs(topic: str, configs: Mapping[str, str]) -> Iterator[str]:
    """The address of a broker whose topic has these settings."""

    class Answering(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(size := self.rfile.read(4)) == 4:
                asked = self.rfile.read(int.from_bytes(size, "big"))
                api, version, number = struct.unpack(">hhi", asked[:8])
                body = struct.pack(">i", number) + self.answer(api, version)
                self.wfile.write(struct.pack(">i", len(body)) + body)

        def answer(self, api: int, version: int) -> bytes:
            if api == API_VERSIONS:
                known = ((API_VERSIONS, 0), (METADATA, 1), (DESCRIBE_CONFIGS, 0))
                listed = b"".join(struct.pack(">hhh", one, 0, most) for one, most in known)
                return struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(known)) + listed
            if api == METADATA:
                broker = struct.pack(">ii", 1, 1) + _text("127.0.0.1") + struct.pack(">ih", port, -1)
                partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
                found = struct.pack(">h", 0) + _text(topic) + struct.pack(">bi", 0, 1) + partition
                return broker + struct.pack(">ii", 1, 1) + found
            entries = b"".join(
                _text(name) + _text(value) + struct.pack(">bbb", 0, 0, 0) for name, value in configs.items()
            )
            head = struct.pack(">iihhb", 0, 1, 0, -1, 2) + _text(topic)
            return head + struct.pack(">i", len(configs)) + entries

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        port = server.server_address[1]
        serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.shutdown()
            serving.join()


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
