"""Puts a mutant into a running process: replaces the code of the one function that it changes.

A forked process that has the package and all tests imported takes up a mutant in a tenth of a second this
way. What is decided while a module is imported (a constant, a class) cannot be replaced so.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import CodeType, FunctionType


def changed_code(before: str, after: str, file: str) -> tuple[CodeType, CodeType] | None:
    """The one function whose code differs between two texts of a module, old and new; None if none is."""
    old, new = (compile(text, file, "exec") for text in (before, after))
    differing = list(_differing(old, new))
    return differing[0] if len(differing) == 1 else None


def _differing(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Functions that differ; of a module or a class those in it, or itself where more differs."""
    olds, news = (_parts(code) for code in (old, new))
    if _without_parts(old) != _without_parts(new) or len(olds) != len(news):
        yield old, new
        return
    for one, other in zip(olds, news, strict=True):
        if one.co_code == other.co_code and one == other:
            continue
        if _is_class(one):
            yield from _differing(one, other)
        else:
            yield one, other


def _parts(code: CodeType) -> list[CodeType]:
    return [part for part in code.co_consts if isinstance(part, CodeType)]


def _without_parts(code: CodeType) -> tuple[object, ...]:
    return code.co_code, code.co_names, [part for part in code.co_consts if not isinstance(part, CodeType)]


def _is_class(code: CodeType) -> bool:
    return (
        "__qualname__" in code.co_names and not code.co_flags & 0x02
    )  # a function has its locals in slots


def put_in(old: CodeType, new: CodeType) -> bool:
    """Replaces the code of every function that has it; False if there is none, or it cannot be replaced."""
    functions = [each for each in gc.get_objects() if type(each) is FunctionType and each.__code__ == old]
    try:
        for function in functions:
            function.__code__ = new
    except ValueError:  # other variables of the function around it
        return False
    return bool(functions)
