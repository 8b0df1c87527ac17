"""Settings: every mistake with file and line, every value with its origin, no secret shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncegate.service.config_loader import Mistakes, read_configuration
from oncegate.service.validation import find_mistakes, read_and_check

SAMPLE = Path(__file__).parents[2] / "examples" / "oncegate.toml"


def mistakes(tmp_path: Path, text: str, **environment: str) -> list[str]:
    """What is wrong, without the folder."""
    file = tmp_path / "oncegate.toml"
    file.write_text(text, "utf-8")

    async def find() -> Any:
        return find_mistakes(read_configuration(file, environment), environment)

    try:
        found = asyncio.run(find())
    except Mistakes as raised:
        found = raised.found
    return [str(one).removeprefix(f"{tmp_path}/") for one in found]


def test_the_sample_can_be_used() -> None:
    async def find() -> Any:
        environment = {"SAMPLE_SECRET": "sample-secret-for-this-machine"}
        return find_mistakes(read_configuration(SAMPLE, environment), environment)

    assert asyncio.run(find()) == []


def test_every_mistake_of_writing_is_told_at_once(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        'urll = "x"\n[server]\nport = "abc"\nhots = "x"\n[surfaces.a]\nsignature = "nope"\n'
        'secrets = ["$S"]\ntenant = "t"\n',
    )

    assert found == [
        "oncegate.toml:1: urll is not a setting; did you mean url?",
        "oncegate.toml:4: hots is not a setting; did you mean hosts?",
        "oncegate.toml:3: server.port: Expected `int`, got `str`",
        (
            "oncegate.toml:6: surfaces.a.signature: Invalid enum value 'nope'; "
            "known: standard-webhooks, github, stripe, bearer"
        ),
    ]


def test_what_can_be_read_but_not_used_is_told_at_once(tmp_path: Path) -> None:
    surface = '[surfaces.{0}]\nkey = "{1}"\nsignature = "bearer"\nsecrets = ["{2}"]\ntenant = "t"\n{3}\n'
    found = mistakes(
        tmp_path,
        surface.format("a", "{message_id}", "$S", "")
        + surface.format("b", "{id}", "plain-text-secret-here", "")
        + surface.format("c", "{id}", "$MISSING", "")
        + surface.format("d", "{id}", "$S", 'forward = "nowhere"')
        + surface.format("e", "{id}", "$S", 'retention = "1d"')
        + '[downstreams.f]\nurl = "http://10.0.0.1/"\n[contract]\nrealtime_forward = "nobody"\n',
        S="long-enough-for-a-secret",
    )

    assert [line.partition(": ")[0] for line in found] == [
        f"oncegate.toml:{line}" for line in (32, 2, 10, 16, 24, 30, 34)
    ]
    assert "message_id" in found[1]
    assert "plain-text-secret-here" not in str(found)
    assert "no MISSING" in found[3]
    assert "nowhere" in found[4]


def test_one_mistake_does_not_hide_another_in_the_same_table(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        '[surfaces.a]\nkey = "{message_id}"\nsignature = "github"\nsecrets = ["$NOPE"]\ntenant = "t"\n'
        'forward = "d"\nmode = "accept"\nlane = "{x"\nretention = "1d"\nskew_max = "soon"\n'
        'allow_transport = ["offset"]\n'
        '[downstreams.d]\nurl = "http://10.0.0.1/"\nhonours_key = "x"\nprobe_url = "https://a.example/"\n',
    )

    places = {line.partition(": ")[0] for line in found}
    assert places == {f"oncegate.toml:{line}" for line in (2, 4, 8, 9, 10, 13, 14, 15)}
    assert len(found) == 8


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('admin = "127.0.0.1:8700"', "the port of [server]"),
        ('admin = "9090"', "not an address such as"),
        ("metrics = 1", "Expected `bool`"),
        ("pages = true", "did you mean page?"),
    ],
)
def test_mistakes_about_listeners_are_told_with_their_line(tmp_path: Path, line: str, told: str) -> None:
    (found,) = mistakes(tmp_path, f"[listeners]\n{line}\n")

    assert found.startswith("oncegate.toml:2: ")
    assert told in found


def test_settings_that_need_each_other_are_not_tried_apart(tmp_path: Path) -> None:
    assert not mistakes(
        tmp_path,
        '[surfaces.a]\nkey = "{message_id}"\nsignature = "bearer"\nsecrets = ["$S"]\ntenant = "t"\n'
        'retention = "200d"\nredelivery_horizon = "150d"\nallow_transport = ["message_id"]\n'
        'mode = "accept"\nlane = "{x}"\n',
        S="long-enough-for-a-secret",
    )


def test_what_can_be_read_is_tried_beside_what_cannot(tmp_path: Path) -> None:
    """So that one run tells everything; what depends on a mistake is not one itself."""
    file = tmp_path / "oncegate.toml"
    file.write_text(
        '[server]\nport = "abc"\nbody_within = "3x"\n[downstreams.d]\nurl = 7\nhonours_key = "x"\n'
        '[surfaces.a]\nkey = "{now}"\nsignature = "bearer"\n'
        'secrets = ["$S"]\ntenant = "t"\nforward = "d"\n',
        "utf-8",
    )

    read, found = read_and_check(file, {"S": "long-enough-for-a-secret"})

    assert read is None
    lines = [mistake.where.rpartition(":")[2] for mistake in found]
    assert lines == ["2", "5", "3", "6", "8"]


def test_what_is_not_toml_is_told_with_its_line(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "[server]\nport = = 1\n")

    assert found.startswith("oncegate.toml:2: ")


@pytest.mark.parametrize("text", ["[server]\nport = [", "[server", 'url = """'])
def test_a_file_that_ends_too_early_is_told_with_its_last_line(tmp_path: Path, text: str) -> None:
    (found,) = mistakes(tmp_path, text)

    assert found.startswith(f"oncegate.toml:{len(text.splitlines())}: ")


def test_values_that_nothing_could_work_with_are_all_told_with_where_they_are_from(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        '[server]\nport = 999999\nbody_bytes_max = -4\nconcurrency_max = 0\ntenant_concurrency_max = 0\n'
        '[contract]\nprefix = "wes"\n[feed]\nretention = "1s"\n',
        ONCEGATE_SERVER_BODY_WITHIN="soon",
    )  # fmt: skip

    assert [line.partition(": ")[0] for line in found] == [
        "ONCEGATE_SERVER_BODY_WITHIN",
        *(f"oncegate.toml:{line}" for line in (2, 3, 4, 5, 9, 7)),
    ]


@pytest.mark.parametrize("host", ["", "not a host"])
def test_where_nobody_can_listen_is_told_once_with_where_it_is_from(tmp_path: Path, host: str) -> None:
    said = "server.host: "
    (in_file,) = mistakes(tmp_path, f'[server]\nport = 1\nhost = "{host}"\nhosts = ["a.example"]\n')
    (in_environment,) = mistakes(tmp_path, "", ONCEGATE_SERVER_HOST=host)
    (beside,) = mistakes(tmp_path, '[server]\nhosts = ["a b"]\n')

    assert in_file.startswith(f"oncegate.toml:3: {said}")
    assert in_environment.startswith(f"ONCEGATE_SERVER_HOST: {said}")
    assert beside.startswith("oncegate.toml:2: server.hosts: ")


@pytest.mark.parametrize(
    "prefix",
    ["", "/", "wes", "/wes/", "/ui", "/ui/x", "/a b", "//a", "/a?b", "/in", "/in/x", "/v1/events",
     "/v1/events/x", "/livez", "/readyz", "/metrics", "/openapi.json", "/a/..", "/./in"],
)  # fmt: skip
def test_a_prefix_that_no_request_could_have_is_refused(tmp_path: Path, prefix: str) -> None:
    (found,) = mistakes(tmp_path, "", ONCEGATE_CONTRACT_PREFIX=prefix)

    assert found.startswith("ONCEGATE_CONTRACT_PREFIX: contract.prefix: ")


@pytest.mark.parametrize("prefix", ["/inner", "/v1", "/v1/eventsource", "/wes/v2.1", "/ui2"])
def test_a_prefix_beside_other_places_can_be_used(tmp_path: Path, prefix: str) -> None:
    assert not mistakes(tmp_path, "", ONCEGATE_CONTRACT_PREFIX=prefix)


SURFACE = '[surfaces.{0}]\nkey = "{{id}}"\nsignature = "bearer"\nsecrets = ["$S"]\ntenant = "t"\n{1}'
SECRETS = {"S": "long-enough-for-a-secret"}


@pytest.mark.parametrize("name", ["wes.realtime", "wes.confirmations", "wes.confirmations.windows"])
def test_a_surface_of_the_contracts_own_is_told_before_it_is_served(tmp_path: Path, name: str) -> None:
    named = SURFACE.format(f'"{name}"', 'retention = "1d"\n')

    taken, low = mistakes(tmp_path, named, **SECRETS)
    (alone,) = mistakes(tmp_path, named + "[contract]\nenabled = false\n", **SECRETS)

    assert taken.startswith(f"oncegate.toml:1: surfaces.{name}: the contract has a surface of this name")
    assert low.startswith("oncegate.toml:6: ")
    assert alone == low


def test_a_name_that_cannot_be_used_is_told_once_beside_what_is_wrong_below_it(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        SURFACE.format('"a "', 'retention = "1d"\nskew_max = "1h"\n')
        + '[downstreams." d"]\nurl = "https://a.example/"\nhonours_key = "7d"\nprobe_url = "x"\n',
        **SECRETS,
    )

    assert [line.partition(": ")[0] for line in found] == [f"oncegate.toml:{n}" for n in (8, 11, 1, 6)]


@pytest.mark.parametrize("tenant", ["", " t"])
def test_a_tenant_that_no_event_could_have_is_told(tmp_path: Path, tenant: str) -> None:
    (found,) = mistakes(tmp_path, SURFACE.format("a", "").replace('"t"', f'"{tenant}"'), **SECRETS)

    assert found.startswith("oncegate.toml:5: surfaces.a.tenant: tenant name ")


def test_a_wrong_network_is_told_once_and_nobody_else_is_blamed(tmp_path: Path) -> None:
    text = (
        '[network]\nallow_networks = ["10.0.0.1/8"]\n[downstreams.d]\nurl = "https://10.0.0.7/"\n'
        'honours_key = "7d"\n' + SURFACE.format("a", 'forward = "d"\nretention = "100d"\n')
    )

    assert mistakes(tmp_path, text, **SECRETS) == [
        "oncegate.toml:2: network.allow_networks: 10.0.0.1/8 has host bits set"
    ]
    (given,) = mistakes(tmp_path, "", ONCEGATE_NETWORK_ALLOW_NETWORKS="10.0.0.0/8,foo")
    assert given.startswith("ONCEGATE_NETWORK_ALLOW_NETWORKS: network.allow_networks: 'foo' ")


def test_retention_of_a_partner_is_checked_like_the_surfaces_own(tmp_path: Path) -> None:
    """F8: the floor holds, and a name that is not the surface's tenant is a slip."""
    partners = "[{}.retention_by_partner]\n{}\n"
    kept = partners.format("surfaces.a", 't = "100d"') + partners.format("contract", 'acme = "40d"')
    secret = {"S": "long-enough-for-a-secret"}
    surface = '[surfaces.a]\nkey = "{id}"\nsignature = "bearer"\nsecrets = ["$S"]\ntenant = "t"\n'
    assert not mistakes(tmp_path, surface + kept, **secret)
    slip = partners.format("surfaces.a", 'tt = "100d"') + partners.format("contract", 'acme = "1d"')
    found = mistakes(tmp_path, surface + slip, **secret)
    assert ["names tt" in found[0], "tenant acme: retention 1d is below" in found[1]] == [True, True], found
    assert [line.partition(": ")[0] for line in found] == ["oncegate.toml:6", "oncegate.toml:8"]


def test_each_mistake_in_the_contract_has_its_own_line(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        '[contract]\nretention = "1d"\nrealtime_forward = "x"\nconfirmations_forward = "d"\n'
        'prefix = "/in"\n[downstreams.d]\nurl = "http://10.0.0.1/"\n',
    )

    assert [line.partition(": ")[0] for line in found] == [f"oncegate.toml:{n}" for n in (5, 7, 2, 3)]
    assert found[3] == "oncegate.toml:3: contract.realtime_forward: there is no downstream x; known: none"
    assert "floor on purpose" not in found[2], "no setting lowers it"


def test_a_variable_that_is_nearly_a_setting_is_told(tmp_path: Path) -> None:
    made_by_platforms = {"ONCEGATE_SERVERS": "1", "ONCEGATE_SERVER_SERVICE_HOST": "10.0.0.1"}
    assert mistakes(tmp_path, "", ONCEGATE_SERVER_PROT="1", **made_by_platforms) == [
        "ONCEGATE_SERVER_PROT: prot is not a setting; did you mean port?"
    ]


def test_a_list_can_be_given_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "oncegate.toml"
    file.write_text("", "utf-8")

    read = read_configuration(file, {"ONCEGATE_NETWORK_ALLOW_NETWORKS": "10.0.0.0/8, 192.168.0.0/16"})

    assert read.settings.network.allow_networks == ("10.0.0.0/8", "192.168.0.0/16")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:canary@db/x",
        "postgresql://app:c@n:canary@db/x",
        "postgresql://app:/canary/@db/x",
        "postgresql://:canary@db/x",
        "postgresql://app@db/x?password=canary&sslmode=require",
        "postgresql://app@db/x?sslmode=require&SSLPASSWORD=canary",
        "https://handler.example/slots?api_key=canary",
    ],
)
def test_no_spelling_of_a_password_in_an_address_is_shown(tmp_path: Path, url: str) -> None:
    file = tmp_path / "oncegate.toml"
    probe = f"{url.replace('?', '/{key}?')}"
    file.write_text(f'url = "{url}"\n[downstreams.d]\nurl = "{url}"\nprobe_url = "{probe}"\n', "utf-8")

    origins = read_configuration(file, {}).origins

    assert "canary" not in str(origins)
    assert "://" in str(origins)


def test_the_environment_comes_first_and_origins_are_told(tmp_path: Path) -> None:
    file = tmp_path / "oncegate.toml"
    file.write_text('url = "postgresql://app:secret@db/x"\n[server]\nport = 1\nhost = "::1"\n', "utf-8")

    read = read_configuration(file, {"ONCEGATE_SERVER_PORT": "9000", "ONCEGATE_NETWORK_ALLOW_HTTP": "true"})
    origins = {origin.name: (origin.value, origin.source) for origin in read.origins}

    assert (read.settings.server.port, read.settings.network.allow_http) == (9000, True)
    assert origins["server.port"] == ("9000", "ONCEGATE_SERVER_PORT")
    assert origins["server.host"] == ("::1", f"{file}:4")
    assert origins["server.body_within"] == ("30s", "default")
    assert "secret" not in str(origins)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no file"):
        read_configuration(tmp_path / "none.toml", {})


@pytest.mark.slow
def test_what_becomes_of_conflicts_is_set_and_shown(tmp_path: Path) -> None:
    surface = '[surfaces.a]\nkey = "{{id}}"\nsignature = "bearer"\nsecrets = ["$S"]\ntenant = "t"\n{0}\n'
    assert mistakes(tmp_path, surface.format('on_conflict = "keep"'), S="x" * 30) == [
        "oncegate.toml:6: surfaces.a.on_conflict: Invalid enum value 'keep'; known: quarantine, refuse"
    ]
    for text, value, source in (("", "quarantine", "default"), ('on_conflict = "refuse"', "refuse", ":6")):
        assert mistakes(tmp_path, surface.format(text), S="x" * 30) == []
        read = read_configuration(tmp_path / "oncegate.toml", {"S": "x" * 30})
        (shown,) = [one for one in read.origins if one.name == "surfaces.a.on_conflict"]
        assert (shown.value, shown.source.endswith(source)) == (value, True)
