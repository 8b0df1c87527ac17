"""The alert rules in Prometheus itself: quiet in a recorded normal week, red in each incident in time.

Run by `promtool test rules`, of the Debian package `prometheus`. Elsewhere they are skipped, unless they
are required.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from oncegate.signals.definition import Definition, Level
from oncegate.signals.definitions import ARRIVALS_STOPPED, DEFINITIONS, Thresholds
from oncegate.signals.rules import alert_rules
from oncegate.store import What
from tests.signals.weeks import BUSY, QUIET, WEEK_MINUTES, steady_week

REQUIRED = "ONCEGATE_REQUIRE_PROMTOOL"
SCRAPE = 5  # minutes between two scrapes, where days are looked at
BEGIN = 10  # the minute in which each incident begins
PROMISED = 3  # minutes after which somebody is called, but for signals that need longer to tell
SURFACE = {"surface": "orders", "destination": "orders", "reader": "orders"}
_SELECTOR = re.compile(r"(oncegate_\w+)(?:\{([^}]*)\})?(\[(\d+)([mh])\])?")
_MATCHER = re.compile(r'(\w+)=(~?)"([^"]*)"')

Group = dict[str, Any]


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        line = "no promtool was found: apt-get install prometheus"
        if os.environ.get(REQUIRED):
            pytest.fail(line)
        pytest.skip(line)
    return found


def alert_of(definition: Definition, level: Level) -> str:
    return f"Oncegate{''.join(map(str.capitalize, definition.name.split('_')))}{level.label.capitalize()}"


def series_of(definition: Definition) -> tuple[str, bool]:
    """The metric that a signal's rule looks at, with labels that fit, and whether it is a counter."""
    found = _SELECTOR.search(definition.query)
    assert found is not None
    labels = {name: value.split("|")[0] for name, _, value in _MATCHER.findall(found[2] or "")}
    if definition.label:
        labels[definition.label] = "orders"
    told = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{found[1]}{{{told}}}", found[3] is not None


def arrivals(known: str, surface: str = "orders") -> str:
    verdict = {"yes": "replay", "retry": "busy"}.get(known, "run")
    return f'oncegate_arrivals_total{{surface="{surface}", verdict="{verdict}", known="{known}"}}'


def buckets(bound: str, values: str) -> dict[str, str]:
    """Reservations that all took less than a bound, and more than the one before."""
    name = 'oncegate_reservation_duration_seconds_bucket{surface="orders", le="%s"}'
    bounds = ["0.064", "0.128", "2.048", "+Inf"]
    return {name % one: "0x400" if bounds.index(one) < bounds.index(bound) else values for one in bounds}


# Signals whose value is made of several series: the incident, and how many minutes it takes to call.
OWN: dict[tuple[str, str], tuple[dict[str, str], int]] = {
    ("repeat_ratio_high", "page"): ({arrivals("no"): "0+4x400", arrivals("yes"): "0x10 0+4x400"}, 6),
    ("repeat_ratio_zero", "page"): ({arrivals("no"): "0x10 0+20x400", arrivals("yes"): "0x500"}, 60),
    ("reservation_p99", "page"): (buckets("2.048", "0x10 0+9x400"), 3),
    ("reservation_p99", "ticket"): (buckets("0.128", "0x10 0+9x400"), 3),
}
STOPPED = 8 * 1440  # the minute after which nothing arrives any more


def incident(definition: Definition, level: Level, share: float = 1.0) -> tuple[dict[str, str], int]:
    """What is scraped before and while a signal has its limit, or a share of it."""
    limit = definition.page if level is Level.PAGE else definition.ticket
    assert limit is not None
    name, is_counter = series_of(definition)
    value = limit * share
    del is_counter  # a counter takes one step, as after a burst between two scrapes
    return {name: f"0x{BEGIN} {value}x60"}, PROMISED


def group(
    name: str, series: dict[str, str], expected: list[tuple[int, str, int | None]], interval: int = 1
) -> Group:
    """One test of promtool: what is scraped each so many minutes, and how many alerts fire when."""
    return {
        "name": name,
        "interval": f"{interval}m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": f"{minute}m",
                "exp_samples": [] if count is None else [{"labels": "{}", "value": count}],
            }
            for minute, expr, count in expected
        ],
    }


def packed(groups: list[Group]) -> list[Group]:
    """The same tests in fewer groups: every group has every rule evaluated, whatever it is about.

    Those that have a metric in common stay apart, so that none sees what belongs to another.
    """
    made: list[tuple[set[str], Group]] = []
    for one in groups:
        metrics = {series["series"].partition("{")[0] for series in one["input_series"]}
        for taken, into in made:
            if not taken & metrics:
                taken.update(metrics)
                into["input_series"] += one["input_series"]
                into["promql_expr_test"] += one["promql_expr_test"]
                break
        else:
            made.append((metrics, one))
    return [one for _, one in made]


def firing(alert: str, surface: str = "") -> str:
    place = f', surface="{surface}"' if surface else ""
    return f'count(ALERTS{{alertname="{alert}", alertstate="firing"{place}}})'


def run(
    promtool: str, place: Path, groups: list[Group], thresholds: Thresholds | None = None, every: int = 1
) -> None:
    """Has the rules evaluated, each so many minutes; a week of minutes would take an hour."""
    (place / "oncegate.rules.yml").write_text(alert_rules(thresholds))
    test = {"rule_files": ["oncegate.rules.yml"], "evaluation_interval": f"{every}m", "tests": groups}
    (place / "test.yml").write_text(json.dumps(test))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=place, capture_output=True, text=True, check=False,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def levels() -> Iterator[tuple[Definition, Level]]:
    for definition in DEFINITIONS:
        for level, limit in ((Level.PAGE, definition.page), (Level.TICKET, definition.ticket)):
            if limit is not None:
                yield definition, level


def test_the_rules_are_what_prometheus_takes(promtool: str, tmp_path: Path) -> None:
    place = tmp_path / "oncegate.rules.yml"
    place.write_text(alert_rules(Thresholds(places={'a "quoted" one': {"quarantines": (1, 5)}})))
    done = subprocess.run([promtool, "check", "rules", str(place)], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_each_incident_calls_within_the_promised_time(promtool: str, tmp_path: Path) -> None:
    """For every signal and level: silent before, red in time, and counters start at 0."""
    groups = []
    for definition, level in levels():
        if definition is ARRIVALS_STOPPED:
            continue
        own = OWN.get((definition.name, level.label))
        series, promised = incident(definition, level) if own is None else own
        alert = alert_of(definition, level)
        expected = [(BEGIN, firing(alert), None), (BEGIN + promised, firing(alert), 1)]
        groups.append(group(alert, series, expected))
    run(promtool, tmp_path, packed(groups))


@pytest.mark.slow
def test_arrivals_that_stop_call_within_two_hours(promtool: str, tmp_path: Path) -> None:
    """Against the same hour yesterday and a week ago; a surface younger than a week is not judged."""
    page, ticket = (alert_of(ARRIVALS_STOPPED, level) for level in (Level.PAGE, Level.TICKET))
    scrapes = STOPPED // SCRAPE
    series = {
        arrivals("no", "busy"): f"0+5x{scrapes} {5 * scrapes}x60",
        arrivals("no", "quiet"): f"0+1x{scrapes} {scrapes}x60",
        arrivals("no", "young"): f"_x{scrapes - 288} 0+5x288 1440x60",
    }
    end = STOPPED + 120
    expected = [
        (STOPPED, firing(page), None),
        (end, firing(page, "busy"), 1),
        (end, firing(page, "quiet"), None),
        (end, firing(ticket, "quiet"), 1),
        (end, firing(page, "young"), None),
    ]
    run(promtool, tmp_path, [group("stopped", series, expected, SCRAPE)], every=30)


@pytest.mark.slow
def test_below_its_limit_nothing_calls(promtool: str, tmp_path: Path) -> None:
    """A rule that calls too early is one that people learn to ignore."""
    groups = []
    for definition, level in levels():
        if definition is not ARRIVALS_STOPPED and (definition.name, level.label) not in OWN:
            series, promised = incident(definition, level, share=0.9)
            alert = alert_of(definition, level)
            groups.append(group(alert, series, [(BEGIN + promised + 20, firing(alert), None)]))
    run(promtool, tmp_path, packed(groups))


@pytest.mark.slow
def test_retries_that_were_asked_for_call_nobody(promtool: str, tmp_path: Path) -> None:
    """A7: an outage of ours is no fault of the sender, and its retries show that keys work."""
    outage = {arrivals("no"): "0+9x400", arrivals("yes"): "0x400", arrivals("retry"): "0+90x400"}
    beside = {**outage, arrivals("yes"): "0+4x400"}  # does not drown in the retries
    high, zero = firing("OncegateRepeatRatioHighPage"), firing("OncegateRepeatRatioZeroPage")
    groups = [
        group("outage", outage, [(200, high, None), (200, zero, None)]),
        group("beside", beside, [(200, high, 1)]),
    ]
    run(promtool, tmp_path, groups)


def test_400_quarantines_between_two_scrapes_call(promtool: str, tmp_path: Path) -> None:
    """What waits is a gauge: it calls although no counter of them was there before."""
    name = 'oncegate_entries_waiting{surface="orders", state="quarantined", reason="skew"}'
    run(
        promtool,
        tmp_path,
        [group("burst", {name: "_x10 400x60"}, [(13, firing("OncegateQuarantinesPage"), 1)])],
    )


@pytest.mark.slow
def test_nothing_scraped_and_a_process_that_is_down_call(promtool: str, tmp_path: Path) -> None:
    """Silence is grey, never green."""
    absent, down = firing("OncegateAbsentPage"), firing("OncegateDownPage")
    labels = 'job="shop", instance="a:9000"'
    series = {
        f"up{{{labels}}}": "1x10 0x60",
        f'oncegate_worker_absent_seconds{{{labels}, surface="orders"}}': "0x10 _x60",
        f'oncegate_arrivals_total{{{labels}, surface="orders"}}': "0x10 _x60",
        f'oncegate_entries_waiting{{{labels}, surface="orders"}}': "0x10 _x60",
    }
    other = {'up{job="other", instance="b:9000"}': "0x60"}
    run(
        promtool,
        tmp_path,
        [
            group("nothing", {}, [(4, absent, None), (6, absent, 1)]),
            group("down", series, [(10, down, None), (14, down, 1), (21, absent, 1)]),
            group("not ours", other, [(30, down, None)]),
        ],
    )


@pytest.mark.slow
def test_a_surface_with_limits_of_its_own_has_rules_of_its_own(promtool: str, tmp_path: Path) -> None:
    limits = Thresholds(places={"busy one": {"quarantines": (None, 10)}})
    series = {
        f'oncegate_entries_waiting{{surface="{name}", state="quarantined"}}': "5x30"
        for name in ("busy one", "orders")
    }
    expr = 'ALERTS{alertname="OncegateQuarantinesPage", alertstate="firing", surface="%s"}'
    expected = [(5, f"count({expr % 'busy one'})", None), (5, f"count({expr % 'orders'})", 1)]
    more = {next(iter(series)): "5x9 11x30"}
    later = [(9, f"count({expr % 'busy one'})", None), (13, f"count({expr % 'busy one'})", 1)]
    run(promtool, tmp_path, [group("five", series, expected), group("eleven", more, later)], limits)


@pytest.mark.slow
def test_a_recorded_normal_week_is_quiet(promtool: str, tmp_path: Path) -> None:
    """Two recorded weeks, the second one looked at: not one alert fires in it."""
    fired = f'count_over_time(ALERTS{{alertstate="firing"}}[{WEEK_MINUTES}m])'
    run(
        promtool,
        tmp_path,
        [group("week", week_series(), [(2 * WEEK_MINUTES, fired, None)], SCRAPE)],
        every=30,
    )


def week_series() -> dict[str, str]:
    """Counters of the recorded week as they are scraped, and every gauge at rest."""
    week, found = steady_week(), {}
    for surface in (BUSY, QUIET):
        fresh, known = week[surface, What.FRESH], week[surface, What.REPLAY]
        place = f'surface="{surface}"'
        found[f'oncegate_arrivals_total{{{place}, verdict="run", known="no"}}'] = counted(fresh)
        found[f'oncegate_arrivals_total{{{place}, verdict="replay", known="yes"}}'] = counted(known)
        found[f'oncegate_repeats_total{{{place}, class="expected_replay"}}'] = counted(known)
        for bound in ("0.001", "+Inf"):
            name = f'oncegate_reservation_duration_seconds_bucket{{{place}, le="{bound}"}}'
            found[name] = counted(fresh)
    for definition in DEFINITIONS:
        name = series_of(definition)[0].replace("orders", BUSY)
        found.setdefault(name, f"0x{2 * WEEK_MINUTES // SCRAPE}")
    found.pop(f'oncegate_arrivals_total{{known="yes", surface="{BUSY}"}}', None)
    found.pop(f'oncegate_reservation_duration_seconds_bucket{{surface="{BUSY}"}}', None)
    found.pop(f'oncegate_arrivals_total{{surface="{BUSY}"}}', None)
    return found


def counted(minutes: list[int]) -> str:
    return " ".join(map(str, [0, *list(accumulate(minutes))[SCRAPE - 1 :: SCRAPE]]))
