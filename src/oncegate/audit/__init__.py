"""`oncegate audit`: finds consumers that do their work twice, by reading their code.

Called by the command line, the operations page and users' own checks. It parses files with `ast` and
resolves imports itself. It must never import, execute or (without `--fix`) write user code.
"""

from __future__ import annotations

from oncegate.audit.run import AuditSettings, audit
from oncegate.audit.values import AuditFinding, AuditReport, NotJudged, ScoreCard

__all__ = ["AuditFinding", "AuditReport", "AuditSettings", "NotJudged", "ScoreCard", "audit"]
