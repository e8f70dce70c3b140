"""The pipeline: whatever sweeps over history runs on Spark, through the data source `tidelog`.

    session      a Spark session as the pipeline needs it, on this machine or on a cluster
    java         where the Java comes from that Spark runs on
    package      our sources as one file, for executors that do not have them installed

    source       the data source: which kind of thing is read or written
    options      what `.option(...)` may say
    kind         what a kind of thing has to offer
    server       the server that is talked to, over RESP and Flight

    streams      the kind `stream`: entries of streams, as batch and as stream, and appending to them
    ranges       which part of a stream is read, and by which tasks
    reading      what a task does to read its part
    following    a stream without end: offsets, limits, what was lost
    entries      entries as columns
    writer       rows become entries, each once

    feeds           the kind `feed`: what changed, as batch and as stream
    feed_places     what a feed watches, and where its server stands
    feed_reading    what a task does to read its part of a feed, to its end
    feed_following  a feed without end: positions, limits, the first batch
    events          events as columns

    days         the kind `days`: the events of job sets
    day_reading  what a task does to read its part of a day
    day_columns  events of days as columns

    journal      the kind `journal`: the records of a data directory or snapshot
    remote_disk  files that lie in an object store

    jobs         what `tidelog pipeline` runs
    lake         Delta tables that are kept equal to a feed

`pyspark` is imported only here.
"""

from tidelog.spark.session import session

__all__ = ["session"]
