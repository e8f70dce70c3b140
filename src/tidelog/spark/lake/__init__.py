"""The lake: Delta tables that are kept equal to a feed, each change exactly once.

layout        the tables and their columns
tables        tables that are opened, made and committed to

task          what a task does: from the socket into files
part_files    the files that a task writes
json_columns  members of JSON objects as columns

batches       batches of the feed become commits
fold          changes are reduced to the state that they lead to
current       the table of the current state, which follows the changes
upkeep        compaction of small files, removal of old ones
job           the job `lake`, which runs all of this
"""
