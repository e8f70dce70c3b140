"""The lake: Delta tables that are kept equal to a feed, each change exactly once.

layout        the tables and their columns
tables        tables that are opened, made and committed to

Changes come in:

task          what a task does: from the socket into files
part_files    the files that a task writes
json_columns  members of JSON objects as columns
batches       batches of the feed become commits

`current` follows:

current       the table of the current state: what a pass takes, and its commit
current_pass  what the tasks of a pass do, bucket by bucket
buckets       which bucket a key belongs to, and a file; how many there are
fold          changes are reduced to the state that they lead to
upsert        what that does to the rows that were there
table_reader  some rows and columns of some files

Files are kept few and large:

compaction    which files are worth writing anew
rewrite       what a task does for that: compact, sort, divide into buckets
upkeep        what the job does itself: compaction of small files, removal of old ones

executors     runs tasks on Spark
job           the job `lake`, which runs all of this
optimize      the job `optimize`: few large files, sorted by key
"""
