"""The tree of errors: as it is drawn, and what an error says about where."""

from __future__ import annotations

import re

import pytest

from tidelog import errors
from tidelog.errors import Corruption, FormatError, TidelogError, TooOld


def drawn_parents() -> dict[str, str]:
    """Name -> parent, as the docstring of the module draws it."""
    path: list[str] = []
    parents = {}
    assert errors.__doc__ is not None
    for line in errors.__doc__.splitlines():
        found = re.match(r" {4}((?:│   |    )*)(├── |└── )?([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4 + bool(found[2])
            del path[depth:]
            parents[found[3]] = path[-1] if path else "Exception"
            path.append(found[3])
    return parents


def test_the_tree_is_as_it_is_drawn() -> None:
    parents = drawn_parents()
    assert sorted(parents) == sorted(errors.__all__)
    assert {name: getattr(errors, name).__bases__[0].__name__ for name in parents} == parents


def test_catching_the_root_catches_all() -> None:
    assert all(issubclass(getattr(errors, name), TidelogError) for name in errors.__all__)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Corruption("it is torn"), "it is torn"),
        (Corruption("it is torn", path="/a/b"), "/a/b: it is torn"),
        (Corruption("it is torn", path="/a/b", frame=0, position=0), "/a/b, frame 0, position 0: it is torn"),
        (FormatError("it is torn", position=7), "position 7: it is torn"),
    ],
)
def test_a_corruption_names_file_frame_and_position(error: Corruption, says: str) -> None:
    assert str(error) == says


def test_too_old_says_what_is_the_oldest() -> None:
    assert TooOld("gone", oldest=17).oldest == 17
