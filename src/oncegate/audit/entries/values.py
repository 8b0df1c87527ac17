"""A handler: where events come in, by which framework, and what it acknowledges by itself."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from oncegate.audit.project.scope import Scope
from oncegate.audit.project.units import FunctionUnit


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A setting that acknowledges early, at its place."""

    node: ast.AST
    scope: Scope
    message: str


@dataclass(slots=True, eq=False)
class Handler:
    """One entry point."""

    unit: FunctionUnit
    framework: str
    kind: str
    body: list[ast.stmt] | None = None
    node: ast.AST | None = None
    settings: list[Setting] = field(default_factory=list)
    message: str = ""
    is_gated: bool = False
    template: ast.expr | None = None

    @property
    def name(self) -> str:
        """The handler as the report names it."""
        return f"{self.unit.module.name}.{self.unit.qualname}"

    @property
    def scope_node(self) -> ast.AST:
        """Where the handler begins."""
        return self.node or self.unit.node
