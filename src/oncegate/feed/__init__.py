"""The feed: publish events once; readers follow them with cursors and acknowledge them (C5)."""

from oncegate.feed.consuming import Consumed, Source, consume, through_gate
from oncegate.feed.feed import Feed, FeedReader
from oncegate.feed.http import HttpSource
from oncegate.feed.values import Ack, Event, Page, Publication, Reader

__all__ = [
    "Ack",
    "Consumed",
    "Event",
    "Feed",
    "FeedReader",
    "HttpSource",
    "Page",
    "Publication",
    "Reader",
    "Source",
    "consume",
    "through_gate",
]
