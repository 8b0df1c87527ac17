"""The HTTP fast path: plain webhooks are answered by the protocol itself, without an ASGI task."""
