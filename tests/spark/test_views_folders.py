"""Where views lie: what is there, whether it can be written to, and that it is removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from tests.integration.s3_server import S3Bucket
from tidelog.spark.delta.faults import TableFault
from tidelog.spark.delta.storage import Storage, find_storage
from tidelog.spark.views.dataflow.folders import check_writable, remove_view, view_names


def test_a_folder_that_can_be_written_to_is_left_empty(tmp_path: Path) -> None:
    check_writable(find_storage(str(tmp_path / "deep" / "lake")))
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_bucket_that_can_be_written_to_is_left_empty(s3_bucket: S3Bucket) -> None:
    storage = Storage(s3_bucket.folder(), dict(s3_bucket.env))
    check_writable(storage)
    assert storage.files("_state").get_file_info(FileSelector("", allow_not_found=True, recursive=True)) == []


def test_what_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for target in (str(file), str(file / "lake"), "ftp://host/lake"):
        with pytest.raises(TableFault, match=r"file|ftp"):
            check_writable(find_storage(target))
    assert file.read_text() == "x"


def test_views_are_listed_and_removed_with_their_state(tmp_path: Path) -> None:
    storage = find_storage(str(tmp_path))
    assert view_names(storage) == []
    for folder in ("views/a", "views/ab", "_state/a/0-1", "_state/a/1-1", "_state/ab/0-1"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text("x")
    assert view_names(storage) == ["a", "ab"]
    assert remove_view(storage, "a")
    assert not remove_view(storage, "a")
    left = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("file"))
    assert left == ["_state/ab/0-1/file", "views/ab/file"]


def test_that_a_lake_cannot_be_listed_is_told() -> None:
    with pytest.raises(TableFault, match="ftp://host/lake: Unknown scheme"):
        view_names(find_storage("ftp://host/lake"))
