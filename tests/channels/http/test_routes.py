"""The table of calls: every path finds its own row, and no two fit one path."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tidelog.channels.http.admin import AdminCalls
from tidelog.channels.http.app import ChannelsApp
from tidelog.channels.http.calls import ChannelCalls
from tidelog.channels.http.routes import OWN_PARTS, ROUTES, RouteRow, RouteTable

TABLE = RouteTable()


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: row.call)
def test_a_path_finds_its_row(row: RouteRow) -> None:
    found = TABLE.find(row.template.replace("{", "").replace("}", ""))
    assert found is not None
    assert found.rows[row.method] is row
    assert found.names == tuple(part[1:-1] for part in row.template.split("/") if part.startswith("{"))
    owners = [each for each in (ChannelCalls, AdminCalls, ChannelsApp) if hasattr(each, row.call)]
    assert len(owners) == 1  # there is one function for it


@pytest.mark.parametrize("path", ["", "/", "//", "/channel/", "/channel/a/b", "channel", "/channel/a/message"])
def test_other_paths_find_nothing(path: str) -> None:
    assert TABLE.find(path) is None


def test_no_two_templates_fit_one_path() -> None:
    templates = sorted({row.template for row in ROUTES})
    for one, two in pairwise(templates):
        parts = list(zip(one.split("/"), two.split("/"), strict=False))
        is_same_length = one.count("/") == two.count("/")
        assert not (is_same_length and all("{" in left + right or left == right for left, right in parts))
    assert len({row.call for row in ROUTES}) == len(ROUTES)
    assert {"channel", "channels", "probe", "admin"} == OWN_PARTS
