"""What a kind of target (`stream`, `journal`, …) offers to the data source.

To add a kind, write a `Kind` and name it in `data_source.KINDS`. What a kind does not offer is refused in its name.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from tidelog.errors import ClientError
from tidelog.spark.options import Options
from tidelog.spark.source.batch_reader import BatchReader, PushdownReader


class Kind:
    """One kind. It is made on the driver, for each use; its readers and writers travel to the executors."""

    name: ClassVar[str]
    """The option that names the target."""
    title: ClassVar[str] = ""
    """What errors call it; empty: by its name."""

    def __init__(self, target: str, options: Options) -> None:
        self.target = target
        self.options = options

    def schema(self) -> StructType:
        """All columns that there are."""
        raise NotImplementedError

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`; the option `pushdown` decides whether Spark may push filters down."""
        is_pushing = self.options.flag("pushdown", True)
        reader = self.batch_reader(schema)
        return PushdownReader(reader) if is_pushing else reader

    def batch_reader(self, _schema: StructType) -> BatchReader[Any]:
        self._refuse("read as a batch")

    def stream_reader(self, _schema: StructType) -> DataSourceStreamReader:
        self._refuse("read as a stream")

    def writer(self, _schema: StructType) -> DataSourceWriter:
        self._refuse("written")

    def stream_writer(self, _schema: StructType) -> DataSourceStreamWriter:
        self._refuse("written")

    def _refuse(self, what: str) -> NoReturn:
        raise ClientError(f"a {self.title or self.name} cannot be {what}")
