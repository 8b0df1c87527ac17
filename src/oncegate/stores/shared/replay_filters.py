"""Which replays a question is about, in the SQL that both ledgers understand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncegate.store import ReplayFilter


def order_conditions(
    wanted: ReplayFilter, number_of: Callable[[str], int | None], mark: str, under_way: str
) -> tuple[list[str], list[Any]]:
    """Conditions on rows called `replayed`, and their parameters, each in the place of a mark."""
    conditions: list[str] = []
    parameters: list[Any] = []
    for column, name in (("destination", wanted.destination), ("tenant", wanted.tenant)):
        if name is not None:
            conditions.append(f"replayed.{column} = {mark}")
            parameters.append(number_of(name) or -1)
    if wanted.lane_id is not None:
        one = f"SELECT nonce FROM oncegate_replay WHERE lane = {mark} LIMIT 1"
        conditions.append(f"(replayed.lane = {mark} OR replayed.nonce = ({one}))")
        parameters += [wanted.lane_id, wanted.lane_id]
    if wanted.nonce is not None:
        conditions.append(f"replayed.nonce = {mark}")
        parameters.append(wanted.nonce)
    return conditions + ([under_way] if wanted.only_running else []), parameters
