"""How Spark finds Tidelog: it imports every module whose name begins with `pyspark_` and registers its `DefaultSource`.

So `format("tidelog")` works wherever the package is installed, without a call that registers it.
"""

from tidelog.spark.source.data_source import TidelogSource as DefaultSource

__all__ = ["DefaultSource"]
