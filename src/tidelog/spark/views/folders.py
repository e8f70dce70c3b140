"""Where views lie in a lake, and what may be done there without knowing any of them.

views/<name>                          the rows of a view, for everybody
_state/<name>/<database>-<digest>     the rows of its sources, which a view goes on from
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pa_fs
from deltalake.exceptions import DeltaError

from tidelog.spark.lake.storage import Storage
from tidelog.spark.lake.tables import LakeFault, first_line

FOLDER: Final = "views"
STATE: Final = "_state"
_FAULTS: Final = (DeltaError, OSError, pa.ArrowException)


def view_names(storage: Storage) -> list[str]:
    """The views that a lake has."""
    try:
        found = storage.files(FOLDER).get_file_info(pa_fs.FileSelector("", allow_not_found=True))
    except _FAULTS as error:
        raise _fault(storage, error) from None
    return sorted(each.base_name for each in found if each.type == pa_fs.FileType.Directory)


def make_sure_of(storage: Storage) -> None:
    """`LakeFault` if nothing can be written there: better told before the first hash than after the last."""
    name = f"{secrets.token_hex(8)}.probe"
    try:
        files = _files(storage, STATE)
        with files.open_output_stream(name) as file:
            file.write(b"tidelog")
        files.delete_file(name)
    except _FAULTS as error:
        raise _fault(storage, error) from None


def remove_view(storage: Storage, name: str) -> bool:
    """Take a view out of the lake, what it goes on from first; whether there was anything."""
    is_there = False
    for folder in (STATE, FOLDER):
        try:
            files = storage.files(folder)
            if files.get_file_info(pa_fs.FileSelector(name, allow_not_found=True)):
                is_there = True
                files.delete_dir(name)
        except _FAULTS as error:
            raise _fault(storage, error) from None
    return is_there


def _files(storage: Storage, folder: str) -> Any:
    """A folder that is there. Object stores have no folders to be made."""
    if storage.is_local:
        pa_fs.LocalFileSystem().create_dir(storage.uri(folder), recursive=True)
    return storage.files(folder)


def _fault(storage: Storage, error: BaseException) -> LakeFault:
    return LakeFault(f"{storage.root}: {first_line(error)}")
