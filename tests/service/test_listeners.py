"""What is for operators has an address of its own, or is switched off (I18)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from oncegate.errors import ConfigError
from oncegate.service.application import VISITS_AT_ONCE
from oncegate.service.listeners import read_address
from oncegate.service.settings import ListenersSettings
from oncegate.testing.waiting import wait_until
from tests.service.process import HOOKS, Process, served
from tests.service.site import BEARER, Site, settings
from tests.service.test_fast_path import chunked

OPERATORS = ("/metrics", "/openapi.json", "/ui", "/ui/", "/ui/login")
ADMIN = '[listeners]\nadmin = "127.0.0.1:0"\n'


def _admin(site: Process) -> Site:
    other = Site.__new__(Site)
    other.port = site.port_of("listening for operators on ")
    return other


def _statuses(site: Site, *paths: str, **headers: str) -> list[int]:
    return [site.call("GET", path, None, headers).status for path in paths]


@pytest.mark.slow
def test_operators_have_an_address_of_their_own_and_callers_theirs(tmp_path: Path) -> None:
    with served(tmp_path, more=ADMIN + HOOKS) as site:
        admin = _admin(site)

        assert _statuses(site, *OPERATORS) == [404] * 5
        assert _statuses(admin, *OPERATORS) == [200, 200, 307, 303, 200]
        assert _statuses(site, "/livez", "/readyz") == _statuses(admin, "/livez", "/readyz") == [200, 200]
        assert site.hook({"id": "n-1"}).status == 200
        assert admin.hook({"id": "n-1"}).status == 404
        assert chunked(admin, b'{"id": "n-1"}', BEARER).status == 404
        assert _statuses(admin, "/v1/events/x", "/wes/v1/dispatch/pending") == [404, 404]
        assert admin.call("POST", "/metrics").headers["allow"] == "GET"
        assert b'route="ui",status="303"' in admin.call("GET", "/metrics").body


@pytest.mark.slow
def test_the_operators_address_answers_to_its_own_names_whatever_the_services_does(tmp_path: Path) -> None:
    """The service is open to a network; a site's name that leads to 127.0.0.1 must not reach the page."""
    with served(tmp_path, 'host = "0.0.0.0"', ADMIN + HOOKS) as site:
        admin = _admin(site)

        assert _statuses(site, "/livez", host="site.example") == [200]
        assert _statuses(admin, "/livez", "/ui/login", host="site.example") == [421, 421]
        assert _statuses(admin, "/ui/login", host=f"localhost:{admin.port}") == [200]


@pytest.mark.parametrize(
    ("name", "paths"), [("metrics", OPERATORS[:1]), ("openapi", OPERATORS[1:2]), ("page", OPERATORS[2:])]
)
def test_each_part_can_be_switched_off(tmp_path: Path, name: str, paths: tuple[str, ...]) -> None:
    given = settings(listeners=msgspec.structs.replace(ListenersSettings(), **{name: False}))
    with Site(tmp_path, given).serving() as site:
        others = [path for path in OPERATORS if path not in paths]

        assert _statuses(site, *paths) == [404] * len(paths)
        assert 404 not in _statuses(site, *others)
        if name == "metrics":
            assert "/metrics" not in site.call("GET", "/openapi.json").document["paths"]


def test_an_address_is_a_host_and_a_port() -> None:
    assert read_address("127.0.0.1:9090") == ("127.0.0.1", 9090)
    assert read_address("[::1]:0") == ("::1", 0)
    for text in (
        "9090",
        ":9090",
        "127.0.0.1",
        "127.0.0.1:",
        "::1:9090",
        "a:99999",
        "a:-1",
        "http://a:1",
        "a:1 ",
    ):
        with pytest.raises(ConfigError):
            read_address(text)


def test_the_page_has_a_few_places_of_its_own(tmp_path: Path) -> None:
    with Site(tmp_path, settings()).serving() as site:
        site.service.visits.total = VISITS_AT_ONCE
        assert site.call("GET", "/ui/login").problem == "overloaded"
        assert site.hook({"id": "n-1"}).status == 200
        site.service.visits.total = 0
        assert site.call("GET", "/ui/login").status == 200
        wait_until(lambda: not site.service.visits.total, what="the place to be given back")
