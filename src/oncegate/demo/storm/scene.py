"""What both runs of the storm share: the story, the size of the crew, time and talk."""

from __future__ import annotations

from dataclasses import dataclass

from oncegate.clock import Clock
from oncegate.demo.storm.deadline import Deadline
from oncegate.demo.storm.progress import StormProgress
from oncegate.demo.storm.story import Story


@dataclass(frozen=True, slots=True)
class Scene:
    """The stage of the story."""

    story: Story
    workers: int
    clock: Clock
    deadline: Deadline
    progress: StormProgress
