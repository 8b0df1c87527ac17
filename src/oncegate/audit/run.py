"""The whole audit: files, scan, modules, suppressions, baseline. Results are the same with any cache."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from hashlib import blake2b
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from oncegate.audit.analyse import ModuleResult, judge_module, merged
from oncegate.audit.cache import AuditCache, FileFacts, KnownModule, load_cache, save_cache
from oncegate.audit.catalogue import RULES
from oncegate.audit.discovery import FoundFile, discover
from oncegate.audit.project.index import ProjectIndex
from oncegate.audit.scan import CHECK_ALL_BYTES_MAX, digest_of, read, scan, size_of
from oncegate.audit.source import decode, parse
from oncegate.audit.suppress import apply, faulty, read_suppressions
from oncegate.audit.values import AuditFinding, AuditReport, Skipped

FILES_PER_PROCESS_MIN: Final = 150
SCANNED_PER_PROCESS_MIN: Final = 600
CHUNK: Final = 24
Made = TypeVar("Made")
VERSION: Final = f"{version('oncegate')}-2"  # a cache of another version is not read


class AuditSettings(Struct, frozen=True):
    """What is audited, and how."""

    paths: tuple[str, ...] = (".",)
    exclude: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    base: str = ""
    jobs: int = 0
    use_cache: bool = True

    @property
    def rules(self) -> frozenset[str]:
        """The rules that count."""
        return frozenset(self.select or RULES) - frozenset(self.ignore)

    def digest(self) -> bytes:
        """What a cached result depends on, beside the files."""
        return blake2b(
            msgspec.json.encode([self.handlers, sorted(self.rules), VERSION]), digest_size=16
        ).digest()


def audit(settings: AuditSettings) -> AuditReport:
    """Audits the paths; reads files and nothing else."""
    base = Path(settings.base or Path.cwd()).resolve()
    found = discover(settings.paths, settings.exclude, base)
    cache = (
        load_cache(base, VERSION, settings.digest())
        if settings.use_cache
        else AuditCache(0, VERSION, b"", b"", {}, {})
    )
    return _Audit(settings, base, found.files, found.skipped, cache).run()


class _Audit:
    """One run."""

    def __init__(
        self,
        settings: AuditSettings,
        base: Path,
        files: list[FoundFile],
        skipped: list[Skipped],
        cache: AuditCache,
    ) -> None:
        self.settings, self.base, self.files, self.skipped, self.cache = (
            settings,
            base,
            files,
            skipped,
            cache,
        )
        self.facts: dict[str, FileFacts] = {}

    def run(self) -> AuditReport:
        """Scans, judges what changed, and puts the report together."""
        self._scan()
        called = sorted(called_names(self.facts))
        names = blake2b(
            "\0".join([*sorted(self.facts), *called]).encode("utf-8", "surrogatepass"), digest_size=16
        ).digest()
        tree = self._tree_digest()
        if self.cache.report is not None and self.cache.tree == tree:
            return self.cache.report
        known = self.cache.modules if self.cache.names == names else {}
        fresh = {path: one for path, one in known.items() if self._is_valid(path, one)}
        wanted = [file for file in self.files if self._is_wanted(file, fresh)]
        for path, module in self._judge(wanted):
            if isinstance(module, str):
                self.facts[path].skipped = module
            else:
                fresh[path] = module
        report = self._report(fresh)
        if self.settings.use_cache:
            cache = self.cache
            cache.names, cache.tree, cache.report = names, tree, report
            cache.files, cache.modules = {**self.facts}, fresh
            save_cache(self.base, cache)
        return report

    def _is_valid(self, path: str, known: KnownModule) -> bool:
        return path in self.facts and all(
            name in self.facts and self.facts[name].digest == digest
            for name, digest in known.depends.items()
        )

    def _is_wanted(self, file: FoundFile, fresh: dict[str, KnownModule]) -> bool:
        facts = self.facts.get(file.path)
        return facts is not None and facts.is_candidate and not facts.skipped and file.path not in fresh

    def _scan(self) -> None:
        checks_all = sum(map(size_of, self.files)) <= CHECK_ALL_BYTES_MAX
        _SHARED[:] = [_Shared(self.settings, self.files, self.cache.files, checks_all)]
        for chunk in self._in_processes(_scan_chunk, self.files, SCANNED_PER_PROCESS_MIN):
            for file, facts in chunk:
                if isinstance(facts, Skipped):
                    self.skipped.append(facts)
                else:
                    self.facts[file.path] = facts
        self.files = [file for file in self.files if file.path in self.facts]

    def _in_processes(
        self, work: Callable[[list[FoundFile]], Made], files: list[FoundFile], least: int
    ) -> Iterator[Made]:
        """Runs work on chunks of files, in two processes where there are enough of them; in order."""
        jobs = self.settings.jobs or min(os.cpu_count() or 1, 2)
        if jobs < 2 or len(files) < least:
            yield work(files)
            return
        chunks = [files[at : at + CHUNK] for at in range(0, len(files), CHUNK)]
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            yield from pool.map(work, chunks)

    def _tree_digest(self) -> bytes:
        made = blake2b(self.settings.digest(), digest_size=16)
        for file in self.files:
            made.update(file.shown.encode("utf-8", "surrogatepass"))
            made.update(self.facts[file.path].digest)
        made.update(msgspec.json.encode(self.skipped))
        return made.digest()

    def _judge(self, wanted: list[FoundFile]) -> Iterator[tuple[str, KnownModule | str]]:
        # Processes are forked after this: they share what is known of all files.
        _SHARED[:] = [_Shared(self.settings, self.files, self.facts)]
        for found in self._in_processes(_judge_chunk, wanted, FILES_PER_PROCESS_MIN):
            yield from found

    def _report(self, modules: dict[str, KnownModule]) -> AuditReport:
        ordered = [modules[file.path].result for file in self.files if file.path in modules]
        findings = _unique([finding for result in ordered for finding in result.findings])
        findings, gone, comments = self._suppressed(findings)
        skipped = [
            *self.skipped,
            *(
                Skipped(one.shown, self.facts[one.path].skipped)
                for one in self.files
                if self.facts[one.path].skipped
            ),
        ]
        return AuditReport(
            tuple(sorted([*findings, *comments], key=lambda one: (one.place, one.rule))),
            tuple(
                sorted((one for result in ordered for one in result.not_judged), key=lambda one: one.place)
            ),
            tuple(card for result in ordered for card in result.cards),
            tuple(sorted(skipped, key=lambda one: one.path)),
            len(self.files) + len(self.skipped),
            sum(facts.lines for facts in self.facts.values()),
            tuple(gone),
        )

    def _suppressed(
        self, findings: list[AuditFinding]
    ) -> tuple[list[AuditFinding], list[AuditFinding], list[AuditFinding]]:
        comments = []
        for file in self.files:
            if self.facts[file.path].has_comments:
                content = read(file)
                try:
                    text = decode(content) if isinstance(content, bytes) else ""
                except (SyntaxError, LookupError, ValueError):
                    continue
                comments += read_suppressions(file.shown, text)
        kept, gone = apply(findings, comments)
        return kept, gone, faulty(comments) if "OG900" in self.settings.rules else []


def _unique(findings: list[AuditFinding]) -> list[AuditFinding]:
    """Each finding once: a helper that two modules reach is judged in both."""
    seen: dict[tuple[str, str, int, int], AuditFinding] = {}
    for one in findings:
        key = (one.rule, one.place.path, one.place.line, one.place.column)
        seen[key] = merged(seen[key], one) if key in seen else one
    return list(seen.values())


def called_names(facts: dict[str, FileFacts]) -> frozenset[str]:
    """Functions with a handler's name that some file of the project calls by itself."""
    return frozenset(name for one in facts.values() for name in one.calls)


class _Shared:
    """What the processes of one run share: files, facts, and the index that they make once each."""

    def __init__(
        self,
        settings: AuditSettings,
        files: list[FoundFile],
        facts: dict[str, FileFacts],
        checks_all: bool = False,
    ) -> None:
        self.settings, self.files, self.facts, self.checks_all = settings, files, facts, checks_all
        self.reasons: dict[str, str] = {}

    @cached_property
    def index(self) -> ProjectIndex:
        """The modules of the project."""
        bases = {
            file.path: self.facts[file.path].bases for file in self.files if self.facts[file.path].bases
        }
        return ProjectIndex(self.files, self._load, bases, called_names(self.facts))

    def _load(self, file: FoundFile) -> tuple[str, ast.Module] | None:
        content = read(file)
        parsed = parse(file.shown, content) if isinstance(content, bytes) else content
        if isinstance(parsed, Skipped):
            self.reasons[file.path] = parsed.reason
            return None
        return parsed

    def facts_of(self, file: FoundFile) -> FileFacts | Skipped:
        """What the scan of a file tells: known from an earlier run, or made now."""
        content = read(file)
        if isinstance(content, Skipped):
            return content
        known, named = self.facts.get(file.path), bool(self.settings.handlers)
        if (
            known is not None
            and (known.is_checked or known.is_candidate or not self.checks_all)
            and known.digest == digest_of(content)
            and (known.is_candidate or not named)
        ):
            return known
        return scan(file, content, named, self.checks_all)


_SHARED: list[_Shared] = []


def _scan_chunk(files: list[FoundFile]) -> list[tuple[FoundFile, FileFacts | Skipped]]:
    return [(file, _SHARED[0].facts_of(file)) for file in files]


def _judge_chunk(wanted: list[FoundFile]) -> list[tuple[str, KnownModule | str]]:
    shared = _SHARED[0]
    found = []
    for file in wanted:
        found.append(
            (file.path, _judge_one(shared.index, file, shared.facts, shared.settings, shared.reasons))
        )
        shared.index.forget()
    return found


def _judge_one(
    index: ProjectIndex,
    file: FoundFile,
    facts: dict[str, FileFacts],
    settings: AuditSettings,
    reasons: dict[str, str],
) -> KnownModule | str:
    index.touched.clear()
    module = index.at(file.path)
    if module is None:
        return reasons.get(file.path, "cannot be parsed")
    try:
        result = judge_module(index, module, settings.handlers, settings.rules)
    except RecursionError:
        return "is nested too deeply"
    except Exception as error:  # noqa: BLE001  one odd file must not end the audit of all others; it is said
        return f"is not judged: a fault in oncegate itself ({type(error).__name__}: {str(error)[:80]})"
    depends = {path: facts[path].digest for path in {file.path, *index.touched} if path in facts}
    return KnownModule(depends, result if result is not None else ModuleResult([], [], []))
