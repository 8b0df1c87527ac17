"""`python -m lab bench`: measures oncegate beside peers, bare servers and the limits of the machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lab.cli import bench_all
from oncegate.cli.bench import add_gate, positive


def add_parser(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser(
        "bench",
        help="measure oncegate beside peers and limits",
        description="Measures one part of oncegate, or all of it, beside what does the same by hand.",
    )
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    add_gate(subjects)
    _add_postgres(subjects)
    _add_redis(subjects)
    _add_shards(subjects)
    _add_http(subjects)
    _add_feed(subjects)
    _add_sender(subjects)
    _add_sources(subjects)
    _add_history(subjects)
    bench_all.add_parser(subjects)


def _add_postgres(subjects: Any) -> None:
    postgres = subjects.add_parser("postgres", help="the same on a PostgreSQL server, beside pgbench")
    postgres.add_argument("--rounds", default=3, type=positive, help="how often to repeat (default: 3)")
    postgres.add_argument("--quick", action="store_true", help="shorter runs, for a first impression")
    postgres.add_argument("--json", action="store_true", help="print one JSON document")
    postgres.add_argument("--plot", metavar="FILE", help="also draw the figures as SVG into this file")
    postgres.set_defaults(run=run_postgres)


def _add_redis(subjects: Any) -> None:
    redis = subjects.add_parser("redis", help="the Redis ledger beside Powertools, appendfsync always")
    redis.add_argument("--rounds", default=3, type=positive, help="how often to repeat (default: 3)")
    redis.add_argument("--quick", action="store_true", help="shorter runs, for a first impression")
    redis.add_argument("--no-install", action="store_true", help="leave Powertools out unless it is there")
    redis.add_argument("--json", action="store_true", help="print one JSON document")
    redis.set_defaults(run=run_redis)


def _add_shards(subjects: Any) -> None:
    shards = subjects.add_parser("shards", help="a ledger on two slow databases beside one")
    shards.add_argument("--rounds", default=3, type=positive, help="how often to repeat (default: 3)")
    shards.add_argument("--json", action="store_true", help="print one JSON document")
    shards.set_defaults(run=run_shards)


def _add_http(subjects: Any) -> None:
    http = subjects.add_parser("http", help="the service over HTTP, beside the bare server it runs on")
    http.add_argument("--rounds", default=3, type=positive, help="how often to repeat (default: 3)")
    http.add_argument("--quick", action="store_true", help="fewer requests, for a first impression")
    http.add_argument("--no-postgres", action="store_true", help="leave PostgreSQL out")
    http.add_argument(
        "--processes", default=1, type=positive, metavar="N",
        help="also so many processes on one PostgreSQL (default: 1, none besides)",
    )  # fmt: skip
    http.add_argument("--json", action="store_true", help="print one JSON document")
    http.set_defaults(run=run_http)


def _add_sender(subjects: Any) -> None:
    sender = subjects.add_parser("sender", help="ordered deliveries over HTTP, beside the bare client")
    sender.add_argument("--quick", action="store_true", help="fewer points, for a first impression")
    sender.add_argument("--no-postgres", action="store_true", help="leave PostgreSQL out")
    sender.add_argument(
        "--no-rivals", action="store_true", help="leave procrastinate out; nothing is installed"
    )
    sender.add_argument("--json", action="store_true", help="print one JSON document")
    sender.set_defaults(run=run_sender)


def _add_sources(subjects: Any) -> None:
    sources = subjects.add_parser("sources", help="events through each queue, beside its bare client")
    sources.add_argument("--rounds", default=3, type=positive, help="how often to repeat (default: 3)")
    sources.add_argument("--quick", action="store_true", help="fewer events, for a first impression")
    sources.add_argument(
        "--only", metavar="KINDS", help="comma-separated: nats, rabbitmq, redis, sqs, kafka"
    )
    sources.add_argument("--no-postgres", action="store_true", help="leave PostgreSQL out")
    sources.add_argument("--json", action="store_true", help="print one JSON document")
    sources.set_defaults(run=run_sources)


def run_sources(arguments: argparse.Namespace) -> int:
    """Measures on servers of its own and prints."""
    from lab.bench.sources import ALL, SourcesBench, sources_part

    wanted = ALL if arguments.only is None else tuple(arguments.only.split(","))
    if unknown := set(wanted) - set(ALL):
        sys.exit(f"{', '.join(sorted(unknown))} is not known; use {', '.join(ALL)}")
    document = SourcesBench(
        kinds=wanted,
        events=500 if arguments.quick else 4_000,
        rounds=arguments.rounds,
        postgres=not arguments.no_postgres,
        talk=lambda line: print(line, file=sys.stderr),
    ).run()
    print(json.dumps(document, indent=2) if arguments.json else sources_part({"sources": document}))
    return 0


def _add_history(subjects: Any) -> None:
    history = subjects.add_parser("history", help="the sealed journal, snapshots and roll-back plans")
    history.set_defaults(run=run_history)


def run_history(arguments: argparse.Namespace) -> int:
    """Prints what a snapshot and a plan take."""
    from lab.bench.history import measure_history
    from lab.bench.journal import measure_journal

    print(json.dumps({"journal": measure_journal(), "history": measure_history()}, indent=2))
    return 0


def _add_feed(subjects: Any) -> None:
    feed = subjects.add_parser(
        "feed", help="days of a real feed in a minute: nothing lost, nothing doubled"
    )
    feed.add_argument("--days", default=1.0, type=float, help="days of the feed to play (default: 1)")
    feed.add_argument("--seconds", default=60.0, type=float, help="in so many seconds (default: 60)")
    feed.add_argument("--processes", default=1, type=positive, metavar="N", help="service processes (1)")
    feed.add_argument("--postgres", action="store_true", help="on a PostgreSQL server, not on SQLite")
    feed.add_argument("--seed", default=1, type=int, help="which feed; the same seed is the same feed (1)")
    feed.add_argument("--json", action="store_true", help="print one JSON document")
    feed.set_defaults(run=run_feed)


def run_sender(arguments: argparse.Namespace) -> int:
    """Measures with receivers in processes of their own and prints."""
    from lab.bench.sender import DELAYS_MS, KEYS, SenderBench
    from lab.cli.bench_sender import as_text

    document = SenderBench(
        keys=(1, 1_000) if arguments.quick else KEYS,
        delays_ms=(0, 5) if arguments.quick else DELAYS_MS,
        seconds=1.0 if arguments.quick else 2.0,
        rounds=2 if arguments.quick else 5,
        postgres=not arguments.no_postgres,
        rivals=not arguments.no_rivals,
        talk=lambda line: print(line, file=sys.stderr),
    ).run()
    print(json.dumps(document, indent=2) if arguments.json else as_text(document))
    return 0


def run_redis(arguments: argparse.Namespace) -> int:
    """Measures on servers of its own and prints."""
    from lab.bench.redis import RedisBench, as_text

    document = RedisBench(
        rounds=arguments.rounds,
        seconds=1.0 if arguments.quick else 2.0,
        install=not arguments.no_install,
        talk=lambda line: print(line, file=sys.stderr),
    ).run()
    print(json.dumps(document, indent=2) if arguments.json else as_text(document))
    return 0


def run_shards(arguments: argparse.Namespace) -> int:
    """Measures on servers of its own and prints."""
    from lab.bench.shards import ShardsBench, as_text

    document = ShardsBench(rounds=arguments.rounds, talk=lambda line: print(line, file=sys.stderr)).run()
    print(json.dumps(document, indent=2) if arguments.json else as_text(document))
    return 0


def run_http(arguments: argparse.Namespace) -> int:
    """Measures with processes of their own and prints."""
    from lab.bench.http import HttpBench

    document = HttpBench(
        requests=3_000 if arguments.quick else 20_000,
        rounds=arguments.rounds,
        postgres=not arguments.no_postgres,
        talk=lambda line: print(line, file=sys.stderr),
        processes=arguments.processes,
    ).run()
    print(json.dumps(document, indent=2) if arguments.json else _http_as_text(document))
    return 0


def run_feed(arguments: argparse.Namespace) -> int:
    """Plays a compressed feed against processes of their own; an event lost or doubled is a failure."""
    from lab.bench.feed import FeedBench, as_text

    report = FeedBench(
        days=arguments.days,
        seconds=arguments.seconds,
        processes=arguments.processes,
        postgres=arguments.postgres or arguments.processes > 1,
        seed=arguments.seed,
        talk=lambda line: print(line, file=sys.stderr),
    ).run()
    print(json.dumps(report.facts(), indent=2) if arguments.json else as_text(report))
    return 0 if report.is_right else 1


def _http_as_text(document: dict[str, Any]) -> str:
    lines = [
        f"{document['connections']} connections, 500-byte POSTs, {document['processors']} processors",
        "",
    ]
    lines.append(
        f"{'server':<12} {'keys':<8} {'requests/s':>10} {'low - high':>17} {'p50 ms':>8} {'p99 ms':>8}"
        f" {'µs of processor: service':>25} {'database':>9} {'load':>6}"
    )
    for one in document["results"]:
        spread = f"{one['rate_low']:,} - {one['rate_high']:,}"
        lines.append(
            f"{one['name']:<12} {one['keys']:<8} {one['rate']:>10,} {spread:>17} {one['p50_ms']:>8.2f}"
            f" {one['p99_ms']:>8.2f} {one['service_us']:>25.0f} {one['database_us']:>9.0f}"
            f" {one['load_us']:>6.0f}"
        )
    lines += ["", *(f"  {value:>5.2f}x  {name}" for name, value in document["ratios"].items())]
    lines += ["", "processor time of the service for one request, against the bare server's:"]
    lines += [f"  {value:>5.2f}x  {name}" for name, value in document["processor_ratios"].items()]
    lines += ["", "requests/s at most, by processor time: one process, all processors with any number:"]
    bounds = document["bounds"].items()
    return "\n".join(
        [*lines, *(f"  {one['one_process']:>7,} {one['machine']:>7,}  {name}" for name, one in bounds)]
    )


def run_postgres(arguments: argparse.Namespace) -> int:
    """Measures on a server of its own and prints."""
    from lab.bench.postgres import PostgresBench

    document = PostgresBench(
        rounds=arguments.rounds,
        seconds=2 if arguments.quick else 4,
        talk=lambda line: print(line, file=sys.stderr),
    ).run()
    if arguments.plot:
        from lab.bench.plot import as_svg, bars_of

        Path(arguments.plot).write_text(as_svg("events a second on PostgreSQL", bars_of(document)), "utf-8")
    print(json.dumps(document, indent=2) if arguments.json else _postgres_as_text(document))
    return 0


def _postgres_as_text(document: dict[str, Any]) -> str:
    head = f"{'what':<45} {'events/s':>9} {'low - high':>17} {'p50 ms':>8}"
    lines = [f"{head} {'its own µs':>11} {'server µs':>10}"]
    for name, found in document["pgbench"].items():
        lines.append(_postgres_line(name, found, found["latency_ms"], document))
    for who in ("asyncpg", "gate"):
        for item in document[who]:
            name = f"{who}, {item['name']}, {item['concurrency']} at once"
            lines.append(_postgres_line(name, item, item["p50_ms"], document))
    for name, run in document["processes"].items():
        shares = (
            f"cores: gate {run['clients']}, server {run['server']}; slowest {run['slowest']} of the mean"
        )
        lines.append(f"{f'gate, {name}':<45} {run['rate']:>9,.0f}   {shares}")
    lines += ["", "ratios of medians"]
    return "\n".join(lines + [f"  {value:>7.2f}x  {name}" for name, value in document["ratios"].items()])


def _postgres_line(name: str, found: dict[str, Any], p50_ms: float, document: dict[str, Any]) -> str:
    spread, spent = f"{found['rate_low']:,.0f} - {found['rate_high']:,.0f}", document["processor"][name]
    return (
        f"{name:<45} {found['rate']:>9,.0f} {spread:>17} {p50_ms:>8.2f} "
        f"{spent['program_us']:>11,} {spent['server_us']:>10,}"
    )
