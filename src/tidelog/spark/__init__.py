"""Tidelog on Spark: a data source, and the jobs of `tidelog pipeline`, which run over history.

    spark = tidelog.spark.session()
    spark.read.format("tidelog").load("stream:orders")

The way in:

    session      makes a Spark session, on this machine or on a cluster
    java         finds the Java that Spark runs on
    package      packs our sources into one file, for executors that do not have them installed
    cache        the folder for files that these make
    class_archive          Spark's classes in a file that Java starts from, one for each Java and Spark
    class_archive_maker    the process that makes it

What everything else builds on:

    options      the options of the data source, checked
    endpoint     a server that is talked to, over RESP and Flight
    remote_disk  journal files in an object store
    copies       history that is read without a server: copies in object stores, data directories, backups
    delta        Delta tables that record how far they are
    runs         sorted runs: state in buckets, which any executor looks into

What runs:

    source       the data source `tidelog`: streams, feeds, days, journals, states
    jobs         batch jobs over all history (`compress`, `expire`, `verify`), and what all jobs share
    lake         the job `lake`: Delta tables that are kept equal to a feed
    views        the job `view`: results of SQL that are kept up to date

Of these, a package imports only what is listed before it; `lake` and `views` do not import each other. No other package
of Tidelog imports `pyspark`.
"""

from tidelog.spark.session import session

__all__ = ["session"]
