"""The Merkle tree of RFC 6962: hashes, proofs from stored subtrees, and their checks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final

EMPTY_ROOT: Final = sha256(b"").digest()
Subtree = Callable[[int, int], bytes]  # (height, number): the hash of that full subtree


def leaf_hash(leaf: bytes) -> bytes:
    """The hash of a leaf."""
    return sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\1" + left + right).digest()


def full_root(hashes: bytes) -> bytes:
    """The root over a power of two of hashes, which follow each other."""
    while len(hashes) > 32:
        hashes = b"".join([sha256(b"\1" + hashes[i : i + 64]).digest() for i in range(0, len(hashes), 64)])
    return hashes


class CompactRange:
    """The full subtrees of a tree that only grows: enough to know its root at every size."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []  # from the largest subtree to the smallest

    def append(self, found: bytes, height: int = 0) -> None:
        """Adds the hash of a leaf, or of a full subtree that begins where one does."""
        self._peaks.append(found)
        self.size += 1 << height
        size = self.size >> height
        while not size & 1:
            right = self._peaks.pop()
            self._peaks[-1] = sha256(b"\1" + self._peaks[-1] + right).digest()
            size >>= 1

    def root(self) -> bytes:
        """The root at the present size."""
        if not self._peaks:
            return EMPTY_ROOT
        found = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            found = node_hash(peak, found)
        return found


def range_hash(subtree: Subtree, low: int, high: int) -> bytes:
    """The hash over leaves from `low` up to `high`, which begins where a subtree does."""
    count = high - low
    if count == 0:
        return EMPTY_ROOT
    if not count & (count - 1):
        height = count.bit_length() - 1
        return subtree(height, low >> height)
    split = low + (1 << (count - 1).bit_length() - 1)
    return node_hash(range_hash(subtree, low, split), range_hash(subtree, split, high))


def inclusion_path(subtree: Subtree, index: int, size: int) -> list[bytes]:
    """The proof that a leaf is in the tree, from the leaf up."""
    path: list[bytes] = []
    low, high = 0, size
    while high - low > 1:
        split = low + (1 << (high - low - 1).bit_length() - 1)
        if index < split:
            path.append(range_hash(subtree, split, high))
            high = split
        else:
            path.append(range_hash(subtree, low, split))
            low = split
    return path[::-1]


def consistency_path(subtree: Subtree, old: int, new: int) -> list[bytes]:
    """The proof that the tree of `old` leaves is the beginning of that of `new` leaves."""
    path: list[bytes] = []
    low, high, is_whole = 0, new, True
    while old < high:
        split = low + (1 << (high - low - 1).bit_length() - 1)
        if old <= split:
            path.append(range_hash(subtree, split, high))
            high = split
        else:
            path.append(range_hash(subtree, low, split))
            low, is_whole = split, False
    return ([] if is_whole else [range_hash(subtree, low, high)]) + path[::-1]


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether the path leads from the hash of a leaf to the root."""
    if not 0 <= index < size:
        return False
    found, last = leaf, size - 1
    for one in path:
        if not last:
            return False
        if index & 1 or index == last:
            found = node_hash(one, found)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            found = node_hash(found, one)
        index, last = index >> 1, last >> 1
    return not last and found == root


def is_consistent(old: int, new: int, path: Iterable[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Whether the tree with `old_root` is the beginning of the tree with `new_root`."""
    nodes = list(path)
    if old > new or old in (0, new):
        return not nodes and (old == 0 or (old == new and old_root == new_root))
    if not old & (old - 1):
        nodes.insert(0, old_root)
    if not nodes:
        return False
    index, last = old - 1, new - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    first = second = nodes[0]
    for one in nodes[1:]:
        if not last:
            return False
        if index & 1 or index == last:
            first, second = node_hash(one, first), node_hash(one, second)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            second = node_hash(second, one)
        index, last = index >> 1, last >> 1
    return not last and first == old_root and second == new_root
