"""Endpoint addresses: what is taken, and every spelling that is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import BadEndpoint
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.urls import parse_endpoint_url

POLICY = AddressPolicy()
DEVELOPMENT = AddressPolicy(allow_http=True, allow_loopback=True)


@pytest.mark.parametrize(
    ("text", "host", "port", "target", "host_header"),
    [
        ("https://example.com", "example.com", 443, "/", "example.com"),
        ("HTTPS://Example.COM/Hooks", "example.com", 443, "/Hooks", "example.com"),
        ("https://example.com:443/", "example.com", 443, "/", "example.com"),
        ("https://example.com:8443/a?b=c&d=%20", "example.com", 8443, "/a?b=c&d=%20", "example.com:8443"),
        ("https://example.com?b=1", "example.com", 443, "/?b=1", "example.com"),
        ("https://a_b.example.com/x", "a_b.example.com", 443, "/x", "a_b.example.com"),
        ("https://xn--bcher-kva.example/x", "xn--bcher-kva.example", 443, "/x", "xn--bcher-kva.example"),
        ("https://8.8.8.8/x", "8.8.8.8", 443, "/x", "8.8.8.8"),
        ("https://[2606:4700::1111]:444/x", "2606:4700::1111", 444, "/x", "[2606:4700::1111]:444"),
        ("https://[::ffff:8.8.8.8]/x", "8.8.8.8", 443, "/x", "8.8.8.8"),
        ("https://localhost.example.com/", "localhost.example.com", 443, "/", "localhost.example.com"),
    ],
)
def test_a_usual_address_is_read(text: str, host: str, port: int, target: str, host_header: str) -> None:
    url = parse_endpoint_url(text, POLICY)
    assert (url.host, url.port, url.target, url.host_header) == (host, port, target, host_header)
    assert parse_endpoint_url(str(url), POLICY) == url


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f.0x0.0x0.0x1",
        "127.0.0.1.",
        "127.0.0.01",
        "127.0.0.0x1",
        "1.2.3.4.5",
        "8.8.8.256",
        "0",
        "0x",
        "example.1",
        "\uff11\uff12\uff17.\uff10.\uff10.\uff11",
        "\u2460\u2461\u2466.0.0.1",
        "127\u30020\u30020\u30021",
        "localhost",
        "LOCALHOST",
        "a.localhost",
        "localhost.",
        "example.com.",
        ".example.com",
        "example..com",
        "-a.example",
        "a-.example",
        "b\u00fccher.example",
        "exa%6dple.com",
        "127%2e0%2e0%2e1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[fe80::1%25eth0]",
        "[2606:4700::1111%eth0]",
        "[127.0.0.1]",
        "[]",
        "[::1",
        "::1",
        "",
        "10.0.0.1",
        "169.254.169.254",
        "user@example.com",
        "user:pw@example.com",
        "@example.com",
        "example.com@127.0.0.1",
        "example.com\\@127.0.0.1",
        "example.com:80@127.0.0.1",
        "example.com:",
        "example.com:0",
        "example.com:080",
        "example.com:65536",
        "example.com:+80",
        "example.com:80:80",
        "exam ple.com",
        "exam\tple.com",
        "example.com\x00",
        "a" * 64 + ".com",
        "a." * 130 + "com",
        "*.example.com",
    ],
)
def test_any_other_host_is_refused(host: str) -> None:
    with pytest.raises(BadEndpoint):
        parse_endpoint_url(f"https://{host}/x", POLICY)


@pytest.mark.parametrize(
    "text",
    [
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//example.com/",
        "example.com",
        "https:/example.com/",
        "https:example.com",
        "https://",
        "https:///x",
        "https://example.com/#top",
        "https://example.com/a b",
        "https://example.com/a\r\nx: y",
        "https://example.com/a\\b",
        'https://example.com/"',
        "https://example.com/\u00e9",
        " https://example.com/",
        "https://example.com/\n",
        "https://example.com/" + "a" * 2048,
        "https://example.com\\.evil.example/",
        "",
    ],
)
def test_any_other_address_is_refused(text: str) -> None:
    with pytest.raises(BadEndpoint) as refused:
        parse_endpoint_url(text, POLICY)
    assert refused.value.status == 422


def test_plain_http_and_loopback_need_the_setting() -> None:
    for text in ("http://127.0.0.1:8000/x", "http://localhost:8000/x", "http://[::1]:8000/x"):
        with pytest.raises(BadEndpoint):
            parse_endpoint_url(text, POLICY)
        assert parse_endpoint_url(text, DEVELOPMENT).port == 8000
    assert parse_endpoint_url("http://example.com/", DEVELOPMENT).port == 80
    for text in ("http://127.1/", "http://2130706433/", "http://10.0.0.1/"):
        with pytest.raises(BadEndpoint):
            parse_endpoint_url(text, DEVELOPMENT)


def test_a_refusal_says_what_to_do() -> None:
    for text, hint in (
        ("http://example.com/", "ONCEGATE_ALLOW_HTTP=1"),
        ("https://u:p@example.com/", "as a header"),
        ("https://127.1/", "a.b.c.d"),
        ("https://10.0.0.1/", "10.0.0.0/8, private"),
    ):
        with pytest.raises(BadEndpoint, match=hint):
            parse_endpoint_url(text, POLICY)


@pytest.mark.slow
@given(st.one_of(st.text(), st.from_regex(r"https?://[!-~]{0,30}"), st.text().map("https://{}".format)))
def test_any_text_is_read_or_refused_and_what_is_read_stays_the_same(text: str) -> None:
    try:
        url = parse_endpoint_url(text, DEVELOPMENT)
    except BadEndpoint:
        return
    assert parse_endpoint_url(str(url), DEVELOPMENT) == url
    assert str(url).isascii()
