"""Where tables lie: a folder, or a URL of an object store that delta-rs knows (s3://, gs://, abfss://, ...).

Tasks write files there and the driver commits them, both with the same options. fsspec's names of S3 options are
translated to those of delta-rs; all other options are passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.fs as pa_fs

from tidelog.errors import ClientError

_FSSPEC: Final = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "region_name": "AWS_REGION",
    "anon": "AWS_SKIP_SIGNATURE",
}
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder or object store for tables. It travels to the executors."""

    root: str
    """A URL, or the absolute path of a folder; without a slash at its end."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """As delta-rs has them. There may be secrets among them."""

    @property
    def is_local(self) -> bool:
        return not _URL.match(self.root)

    def uri(self, table: str) -> str:
        return f"{self.root}/{table}"

    def files(self, table: str) -> Any:
        """A file system whose root is that of a table."""
        if self.is_local:
            return pa_fs.SubTreeFileSystem(self.uri(table), pa_fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return pa_fs.PyFileSystem(DeltaStorageHandler(self.uri(table), dict(self.options)))

    def write(self, table: str, name: str, data: Any) -> None:
        """Write a file of a table."""
        view = memoryview(data)
        # Through a buffer: the files of delta-rs refuse what Arrow hands on without one.
        with self.files(table).open_output_stream(name, buffer_size=2 * _PIECE_BYTES) as file:
            for start in range(0, len(view), _PIECE_BYTES):
                file.write(view[start : start + _PIECE_BYTES])


def find_storage(target: str, given: Sequence[str] = ()) -> Storage:
    """The storage that `--to` and `--storage` name."""
    options: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ClientError(f"--storage {name!r} is not NAME=VALUE, such as endpoint_url=http://127.0.0.1:9000")
        options[_FSSPEC.get(name, name)] = value
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options.setdefault("AWS_ALLOW_HTTP", "true")
    if not target:
        raise ClientError("--to is empty: give a folder, or a URL such as s3://bucket/lake")
    if target.startswith("file://"):
        target = target.removeprefix("file://")
        if not target:
            raise ClientError("--to file:// names no folder: write file:///PATH, or the path alone")
    if scheme := _URL.match(target):
        if target[scheme.end() :][:1] in ("", "/"):
            raise ClientError(f"--to {target} names no bucket: write it as {scheme[0]}BUCKET/PATH")
        return Storage(target.rstrip("/"), options)
    if options:
        raise ClientError(f"--storage is for object stores, and --to {target} is a folder")
    return Storage(str(Path(target).absolute()), options)
