"""Addresses are shown without what may be a secret in them."""

from __future__ import annotations

import pytest

from oncegate.model.redact import HIDDEN, masked_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://shop.example/hooks/orders", "https://shop.example/hooks/orders"),
        ("https://shop.example:8443/", "https://shop.example:8443/"),
        ("https://shop.example", "https://shop.example"),
        ("http://[2001:db8::1]/v1/notifications", "http://[2001:db8::1]/v1/notifications"),
        (
            "https://shop.example/2024-06-01/order-updates-v2",
            "https://shop.example/2024-06-01/order-updates-v2",
        ),
        ("https://shop.example/slots/{key}", "https://shop.example/slots/{key}"),
        ("https://ann:pass@shop.example/", "https://…@shop.example/"),
        ("https://token@shop.example/", "https://…@shop.example/"),
        ("https://shop.example/h?token=abc&v=2&flag", "https://shop.example/h?token=…&v=…&flag"),
        ("https://shop.example/h?a=b=c", "https://shop.example/h?a=…"),
        ("https://shop.example/h?Zk3hXw9QpL2mN8vB", "https://shop.example/h?…"),
        ("https://hooks.example/T0AB/B0CD/Zk3hXw9QpL2mN8vB4tR6", "https://hooks.example/T0AB/B0CD/…"),
        ("https://shop.example/0f8fad5b-d9cb-469f-a165-70867728950e/in", "https://shop.example/…/in"),
        ("https://shop.example/whsec_c2VjcmV0c2VjcmV0", "https://shop.example/…"),
        ("https://shop.example/%5Ak3hXw9QpL2mN8vB", "https://shop.example/…"),
        ("https://shop.example/h#Zk3hXw9QpL2mN8vB", "https://shop.example/h"),
        ("not an address with a s3cret", "…"),
    ],
)
def test_what_may_be_a_secret_is_hidden(url: str, shown: str) -> None:
    assert masked_url(url) == shown


def test_each_address_of_a_list_is_masked() -> None:
    """Brokers are named so; the second password is one too."""
    assert masked_url("nats://h:1,nats://u:secret@h:2") == f"nats://h:1,nats://{HIDDEN}@h:2"
    assert masked_url("https://h/to?u=https://x") == f"https://h/to?u={HIDDEN}"
