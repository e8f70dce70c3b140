"""Sorted runs: tables that are divided into buckets, kept in files that never change, and looked into by any executor.

run_files    runs, and the folder where they lie; runs of an object store in a cache of this machine
sorted_rows  runs over each other, in which the newest row of a key counts
multisets    runs over each other, in which weights are added up
run_lists    which runs there are, committed at one place
merging      many runs become one

Nothing here knows what the rows mean, and nothing needs Spark.
"""
