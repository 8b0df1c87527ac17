"""`oncegate audit`: exit codes, outputs, known findings, fixes, cache."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as Xml
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import pytest

from oncegate.audit.catalogue import RULES

Run = Callable[..., tuple[int, str, str]]
SCHEMA = Path(__file__).parent / "data" / "sarif-2.1.0-rtm.5.json"
GOOD = "from celery import shared_task\n\n\n@shared_task\ndef noop(order):\n    return order\n"


def test_a_finding_has_its_line_a_reason_and_a_fix(run: Run) -> None:
    """People see the place, the source line, why and what to do; the exit code is 1."""
    code, out, _ = run()
    assert code == 1
    assert "orders.py:7:5  OG001  outside call before any reservation: requests.post(...)" in out
    assert "▸ 7      requests.post(" in out
    assert RULES["OG001"].why in out
    assert "1 finding in 1 handlers, 0 not judged" in out


def test_a_fault_through_a_client_is_shown_in_the_handlers_module(run: Run, project: Path) -> None:
    """Each handler has its own finding; a reason beside the client's call hides both."""
    client = "import requests\n\n\ndef book(order):\n    requests.post('https://x', json=order)"
    (project / "client.py").write_text(client + "\n", "utf-8")
    task = "\n\n\n@shared_task\ndef {}(order):\n    book(order)\n"
    head = "from celery import shared_task\nfrom client import book"
    (project / "orders.py").write_text(head + task.format("one") + task.format("two"), "utf-8")
    found = json.loads(run("--json")[1])["findings"]
    assert [(one["path"], one["line"], one["handler"]) for one in found] == [
        ("orders.py", 7, "orders.one"),
        ("orders.py", 13, "orders.two"),
    ]
    assert "in client.py:5" in found[0]["message"]
    (project / "client.py").write_text(f"{client}  # oncegate: ignore[OG001] it knows order ids\n", "utf-8")
    assert run()[0] == 0


def test_code_without_findings_ends_with_zero(run: Run, project: Path) -> None:
    """Nothing found is exit code 0."""
    (project / "orders.py").write_text(GOOD, "utf-8")
    assert run()[0] == 0


def test_wrong_paths_and_rules_are_usage_errors(run: Run) -> None:
    """A path or a rule that does not exist ends with 2 and one line."""
    assert run("nowhere")[0] == 2
    code, _, err = run("--select", "OG999")
    assert code == 2
    assert "there is no rule 'OG999'" in err


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_explained(run: Run, rule: str) -> None:
    """`--explain` shows why, fix, a bad and a good example."""
    code, out, _ = run("--explain", rule)
    assert code == 0
    assert all(word in out for word in (rule, "Why:", "Fix:", "Bad:", "Good:"))


def test_sarif_is_valid_and_has_flows_fixes_and_suppressions(run: Run, project: Path) -> None:
    """The document passes the schema of SARIF 2.1.0 with every optional part in it."""
    (project / "helpers.py").write_text(
        "from datetime import datetime\nimport requests\n\n\ndef call(order):\n"
        "    requests.post('https://x', json=[order, datetime.utcnow()])\n",
        "utf-8",
    )
    (project / "orders.py").write_text(
        "import requests\nfrom celery import shared_task\nfrom helpers import call\n\n\n@shared_task\ndef a(order):\n    call(order)\n"
        "    requests.post('https://y', json=order)  # oncegate: ignore[OG001] the partner recognises it\n",
        "utf-8",
    )
    (project / "broken.py").write_text("def (\n", "utf-8")
    _, out, _ = run("--format", "sarif", "--baseline", "none.json")
    document = json.loads(out)
    text = SCHEMA.read_text("utf-8").replace(
        "{2}]?$", "{2}?$"
    )  # a bracket too many in the published pattern
    assert [
        str(error) for error in jsonschema_rs.validator_for(json.loads(text)).iter_errors(document)
    ] == []
    results = document["runs"][0]["results"]
    assert any("codeFlows" in one for one in results)
    assert any("fixes" in one for one in results)
    assert any(one.get("suppressions") for one in results)
    assert all(one["partialFingerprints"]["oncegate/v1"] for one in results)
    assert document["runs"][0]["invocations"][0]["toolExecutionNotifications"]


def test_json_junit_github_and_markdown_name_the_finding(run: Run, project: Path) -> None:
    """Each format can be read by what it is for."""
    document = json.loads(run("--json")[1])
    assert document["findings"][0]["rule"] == "OG001"
    assert document["cards"][0]["answers"]["Is a key reserved before the outside call?"] == "no"
    suite = Xml.fromstring(run("--format", "junit")[1])
    assert suite.find(".//failure") is not None
    assert run("--format", "github")[1].startswith("::error file=orders.py,line=7,")
    assert "| `orders.py:7` | OG001 |" in run("--format", "markdown")[1]


def test_a_baseline_lets_only_new_findings_count(run: Run, project: Path) -> None:
    """KnownFinding findings are shown as known; a new one fails again; a fixed one leaves the file."""
    assert run("--baseline", "known.json", "--update-baseline")[0] == 0
    assert run("--baseline", "known.json")[0] == 0
    source = (project / "orders.py").read_text("utf-8")
    (project / "orders.py").write_text("# moved by a line\n" + source, "utf-8")
    assert run("--baseline", "known.json")[0] == 0
    more = source + "    requests.patch('https://bank.example', json=order)\n"
    (project / "orders.py").write_text(more, "utf-8")
    assert run("--baseline", "known.json")[0] == 1
    assert run("--baseline", "known.json", "--update-baseline")[0] == 1
    (project / "orders.py").write_text(GOOD, "utf-8")
    run("--baseline", "known.json", "--update-baseline")
    assert json.loads((project / "known.json").read_text("utf-8"))["findings"] == []


def test_a_suppression_needs_a_rule_a_reason_and_a_finding(run: Run, project: Path) -> None:
    """With a reason it hides the finding; without one, or without a finding, it is a finding itself."""
    source = (project / "orders.py").read_text("utf-8").rstrip("\n")
    (project / "orders.py").write_text(
        f"{source}  # oncegate: ignore[OG001] the bank knows orders\n", "utf-8"
    )
    assert run()[0] == 0
    (project / "orders.py").write_text(f"{source}  # oncegate: ignore[OG001]\n", "utf-8")
    out = run()[1]
    assert "OG001" in out
    assert "has no reason" in out
    (project / "orders.py").write_text(f"{GOOD}# oncegate: ignore[OG005] nothing here\nX = 1\n", "utf-8")
    assert "hides nothing" in run()[1]


def test_settings_come_from_pyproject(run: Run, project: Path) -> None:
    """Handlers, rules and paths can be configured; an unknown setting is refused."""
    (project / "orders.py").write_text(
        "import requests\n\n\ndef work(x):\n    requests.post('https://x', json=x)\n", "utf-8"
    )
    assert run()[0] == 0
    (project / "pyproject.toml").write_text("[tool.oncegate.audit]\nhandlers = ['orders:work']\n", "utf-8")
    assert run()[0] == 1
    (project / "pyproject.toml").write_text(
        "[tool.oncegate.audit]\nhandlers = ['orders:work']\nignore = ['OG001']\n", "utf-8"
    )
    assert run()[0] == 0
    (project / "pyproject.toml").write_text("[tool.oncegate.audit]\nrules = []\n", "utf-8")
    assert run()[0] == 2


def test_diff_reports_changed_lines_only(run: Run, project: Path) -> None:
    """An old finding is left out, a new one on a changed line is not."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "orders.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, cwd=project)
    assert run("--diff", "HEAD")[0] == 0
    source = (project / "orders.py").read_text("utf-8")
    (project / "orders.py").write_text(
        source + "    requests.patch('https://bank.example', json=order)\n", "utf-8"
    )
    code, out, _ = run("--diff", "HEAD")
    assert code == 1
    assert "requests.patch" in out
    assert "requests.post(...)" not in out
    assert run("--diff", "no-such-revision")[0] == 2


def test_fix_changes_what_is_mechanical_and_nothing_else(run: Run, project: Path) -> None:
    """A naive time and a key that is at hand are mended; a missing reservation is not."""
    (project / "orders.py").write_text(
        "from datetime import datetime\n\nimport redis\nimport requests\nimport stripe\nfrom celery import shared_task\n\n"
        "r = redis.Redis()\n\n\n@shared_task\ndef pay(order_id, log):\n    if not r.set(f'pay:{order_id}', 1, nx=True):\n"
        "        log.info('repeat')\n        return\n"
        "    stripe.Charge.create(\n        amount=1,\n        created=datetime.utcnow(),\n    )\n\n\n@shared_task\ndef bare(order):\n"
        "    requests.post('https://x', json=order)\n",
        "utf-8",
    )
    before = (project / "orders.py").read_text("utf-8")
    assert "datetime.now(timezone.utc)" in run("--patch")[1]
    assert (project / "orders.py").read_text("utf-8") == before
    run("--fix")
    after = (project / "orders.py").read_text("utf-8")
    assert "created=datetime.now(timezone.utc), idempotency_key=f'pay:{order_id}'," in after
    assert "from datetime import timezone" in after
    rules = {one["rule"] for one in json.loads(run("--json")[1])["findings"]}
    assert rules == {"OG001"}


def test_the_cache_gives_the_same_report_and_sees_changes(run: Run, project: Path) -> None:
    """A helper that changes is judged again, although its caller did not change."""
    (project / "helpers.py").write_text("def send(order):\n    return order\n", "utf-8")
    (project / "orders.py").write_text(
        "from celery import shared_task\nfrom helpers import send\n\n\n@shared_task\ndef a(order):\n    send(order)\n",
        "utf-8",
    )
    assert run()[0] == 0
    assert (project / ".oncegate_cache").is_dir()
    assert run()[0] == 0
    (project / "helpers.py").write_text(
        "import requests\n\n\ndef send(order):\n    requests.post('https://x', json=order)\n", "utf-8"
    )
    assert run()[0] == 1
    assert run()[1] == run("--no-cache")[1]
    (project / ".oncegate_cache" / "audit.msgpack").write_bytes(b"\x00damaged")
    assert run()[0] == 1


def test_user_code_is_never_executed(run: Run, project: Path) -> None:
    """A module that would leave a trace when imported leaves none."""
    trace = project / "trace"
    (project / "orders.py").write_text(f"open({str(trace)!r}, 'w')\nraise SystemExit(3)\n", "utf-8")
    assert run()[0] == 0
    assert not trace.exists()
