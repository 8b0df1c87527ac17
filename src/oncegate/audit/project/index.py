"""The files of the project by module name: finds the file behind an import without importing it."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from oncegate.audit.discovery import FoundFile
from oncegate.audit.project.units import ClassUnit, FunctionUnit, ModuleUnit

MODULES_MAX: Final = 400
SUBCLASSES_MAX: Final = 8
Symbol = ModuleUnit | ClassUnit | FunctionUnit


class ProjectIndex:
    """Modules by name; a module is parsed when it is first asked for."""

    def __init__(
        self,
        files: Sequence[FoundFile],
        load: Callable[[FoundFile], tuple[str, ast.Module] | None],
        bases: Mapping[str, Sequence[str]],
        called: frozenset[str] = frozenset(),
    ) -> None:
        self._load = load
        self.called = called
        # What names and expressions mean, while one module is judged; nodes are kept so that ids stay theirs.
        self.types: dict[tuple[int, int], tuple[object, object]] = {}
        self.units: dict[tuple[int, int], tuple[object, object]] = {}
        self.active: set[tuple[int, int]] = set()
        self.touched: set[str] = set()
        self._subclasses: dict[str, list[str]] = {}
        for path, names in bases.items():
            for name in names:
                self._subclasses.setdefault(name, []).append(path)
        self._files: dict[str, FoundFile] = {}
        self._by_name: dict[str, list[str]] = {}
        self._modules: dict[str, ModuleUnit | None] = {}
        self._names: dict[str, str] = {}
        packages = {
            os.path.dirname(file.path) for file in files if os.path.basename(file.path) == "__init__.py"
        }
        for file in files:
            self._files[file.path] = file
            names = _names_of(file, packages)
            self._names[file.path] = names[0]
            for name in names:
                self._by_name.setdefault(name, []).append(file.path)

    def at(self, path: str) -> ModuleUnit | None:
        """The module of a file, or None where it cannot be parsed."""
        self.touched.add(path)
        if path not in self._modules:
            file = self._files[path]
            loaded = self._load(file)
            self._modules[path] = (
                ModuleUnit(self._names[path], path, file.shown, *loaded) if loaded is not None else None
            )
        return self._modules[path]

    def forget(self) -> None:
        """Drops what was inferred, and parsed modules when there are many: memory stays bounded."""
        self.types.clear()
        self.units.clear()
        self.active.clear()
        if len(self._modules) > MODULES_MAX:
            self._modules.clear()

    def with_subclasses(self, name: str) -> list[ModuleUnit]:
        """The modules that have a class with a base of this name."""
        found = (self.at(path) for path in sorted(self._subclasses.get(name, ()))[:SUBCLASSES_MAX])
        return [module for module in found if module is not None]

    def module(self, name: str, asked_from: str) -> ModuleUnit | None:
        """The module of a name; among several, the one nearest to the file that asks."""
        paths = self._by_name.get(name)
        if not paths:
            return None
        best = max(paths, key=lambda path: _shared(path, asked_from))
        return self.at(best)

    def has(self, name: str) -> bool:
        """Whether a module of this name is part of the project."""
        return name in self._by_name

    def find(self, dotted: str, asked_from: str, depth: int = 0) -> Symbol | tuple[ModuleUnit, str] | None:
        """What a dotted name means in the project: a unit, a module's variable, or None outside it."""
        parts = dotted.split(".")
        for size in range(len(parts), 0, -1):
            module = self.module(".".join(parts[:size]), asked_from)
            if module is not None:
                return self.member(module, parts[size:], depth) if size < len(parts) else module
        return None

    def member(
        self, module: ModuleUnit, rest: Sequence[str], depth: int = 0
    ) -> Symbol | tuple[ModuleUnit, str] | None:
        """A member of a module, through what the module imports."""
        name = ".".join(rest)
        if name in module.functions:
            return module.functions[name]
        if name in module.classes:
            return module.classes[name]
        if rest[0] in module.imports and depth < 8:
            target = module.imports[rest[0]]
            return self.find(".".join([target, *rest[1:]]), module.path, depth + 1)
        if len(rest) == 1 and rest[0] in module.bindings:
            return module, rest[0]
        return None


def _shared(path: str, other: str) -> int:
    """How many folders two files have in common."""
    pairs = zip(path.split(os.sep), other.split(os.sep), strict=False)
    return next((number for number, (one, two) in enumerate(pairs) if one != two), len(path))


def _names_of(file: FoundFile, packages: set[str]) -> list[str]:
    """The names a file can be imported by: below its package's root, below the audited folder."""
    folder, _, name = file.path.rpartition(os.sep)
    stem = name.rsplit(".", 1)[0]
    root = folder
    while root in packages and os.sep in root:
        root = root.rpartition(os.sep)[0]
    limit = os.path.abspath(file.root)
    names = [_dotted(folder[len(root) :], stem)]
    current = folder
    while len(current) >= len(limit) and current.startswith(limit) and os.sep in current:
        names.append(_dotted(folder[len(current) :], stem))
        current = current.rpartition(os.sep)[0]
    return list(dict.fromkeys(name for name in names if name)) or [name]


def _dotted(folders: str, stem: str) -> str:
    parts = [part for part in folders.split(os.sep) if part]
    return ".".join(parts if stem == "__init__" else [*parts, stem])
