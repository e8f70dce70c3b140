"""What a kind of thing (`stream`, `journal`, …) has to offer to the data source.

A kind is added by writing a `Kind` and naming it in `source.KINDS`. What it does not offer is refused in its name.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from tidelog.errors import ClientError
from tidelog.spark.options import BadOption, Options


class Kind:
    """One kind. Made on the driver, for each use; readers and writers travel to the executors."""

    name: ClassVar[str]
    """The option that names the target."""

    def __init__(self, target: str, options: Options) -> None:
        self.target = target
        self.options = options

    def schema(self) -> StructType:
        """All columns that there are."""
        raise NotImplementedError

    def reader(self, _schema: StructType) -> DataSourceReader:
        self._refuse("read as a batch")

    def stream_reader(self, _schema: StructType) -> DataSourceStreamReader:
        self._refuse("read as a stream")

    def writer(self, _schema: StructType) -> DataSourceWriter:
        self._refuse("written")

    def stream_writer(self, _schema: StructType) -> DataSourceStreamWriter:
        self._refuse("written")

    def _refuse(self, what: str) -> NoReturn:
        raise ClientError(f"a {self.name} cannot be {what}")


def check_columns(wanted: StructType, known: StructType, may_be: dict[str, tuple[Any, ...]]) -> None:
    """Refuse a schema with columns that there are not; `may_be` has other types that a column can come as."""
    types = {field.name: field.dataType for field in known}
    for field in wanted:
        if field.name not in types:
            raise BadOption(f"there is no column {field.name!r}: there are {', '.join(types)}")
        allowed = (types[field.name], *may_be.get(field.name, ()))
        if field.dataType not in allowed:
            shown = " or ".join(each.simpleString() for each in allowed)
            raise BadOption(f"column {field.name} is {shown}, not {field.dataType.simpleString()}")
