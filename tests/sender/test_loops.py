"""The loop of a delivering process: garbage is looked for seldom while it runs, then as before."""

from __future__ import annotations

import gc

import pytest

from oncegate.sender.loops import YOUNG_OBJECTS_MAX, run


async def thresholds() -> tuple[int, int, int]:
    return gc.get_threshold()


@pytest.mark.parametrize(
    ("usual", "inside"),
    [(700, YOUNG_OBJECTS_MAX), (YOUNG_OBJECTS_MAX * 2, YOUNG_OBJECTS_MAX * 2), (0, 0)],
)
def test_young_objects_may_be_many_while_the_loop_runs(usual: int, inside: int) -> None:
    """Whoever has set more, or turned the collector off, keeps that."""
    before = gc.get_threshold()
    gc.set_threshold(usual, *before[1:])
    try:
        assert run(thresholds()) == (inside, *before[1:])
        assert gc.get_threshold() == (usual, *before[1:])
    finally:
        gc.set_threshold(*before)


def test_the_usual_is_put_back_after_a_failure() -> None:
    async def fail() -> None:
        raise ValueError("as a scene may")

    before = gc.get_threshold()
    with pytest.raises(ValueError, match="as a scene may"):
        run(fail())
    assert gc.get_threshold() == before
