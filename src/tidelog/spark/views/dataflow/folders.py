"""Where views lie in a lake.

views/<name>                          the rows of a view, for every reader
_state/<name>/<database>-<digest>     the rows of its sources, from which a later run goes on
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pa_fs
from deltalake.exceptions import DeltaError

from tidelog.spark.delta.faults import TableFault, first_line
from tidelog.spark.delta.storage import Storage

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


def check_writable(storage: Storage) -> None:
    """`TableFault` if nothing can be written there: better before the first hash is written than after the last."""
    name = f"{secrets.token_hex(8)}.probe"
    try:
        files = _files(storage, STATE)
        storage.write(STATE, name, b"tidelog")
        files.delete_file(name)
    except _FAULTS as error:
        raise _fault(storage, error) from None


def remove_view(storage: Storage, name: str) -> bool:
    """Remove a view from the lake, its state first. Returns whether there was anything."""
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
    """A folder, made if it does not exist. Object stores have no folders."""
    if storage.is_local:
        pa_fs.LocalFileSystem().create_dir(storage.uri(folder), recursive=True)
    return storage.files(folder)


def _fault(storage: Storage, error: BaseException) -> TableFault:
    return TableFault(f"{storage.root}: {first_line(error)}")
