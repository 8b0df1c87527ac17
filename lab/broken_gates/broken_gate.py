"""What a broken gate is: a gate that is wrong in one way, and how the harness is to notice."""

from __future__ import annotations

from typing import ClassVar

from lab.simulator.worker import Blueprint, TrueFace, Worker
from lab.simulator.workload import SURFACES


class BrokenGate(Blueprint):
    """One broken gate. Its docstring is its story; `caught_as` are the invariants it may be caught by."""

    caught_as: ClassVar[tuple[str, ...]]
    surfaces: ClassVar[tuple[str, ...]] = SURFACES
    face_type: ClassVar[type[TrueFace]] = TrueFace

    def build(self, worker: Worker) -> TrueFace:
        """Makes the gate of a worker that has just started."""
        return self.face_type(worker)

    @classmethod
    def title(cls) -> str:
        """The first line of the story."""
        return (cls.__doc__ or "").strip().splitlines()[0].rstrip(".")

    @classmethod
    def story(cls) -> str:
        """The rest of it, as one paragraph."""
        return " ".join(" ".join((cls.__doc__ or "").strip().splitlines()[1:]).split())
