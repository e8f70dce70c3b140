"""The lake: Delta tables that are kept equal to the feed, each change exactly once.

layout            the tables and their columns
storage           the folder or object store that they lie in
tables            tables that know how far they are: the checkpoint

task              what a task does: from the socket into files
part_files        the files that it writes
standing_entries  what streams have when a lake begins with the values of now
json_columns      members of JSON objects as columns

batches           batches of the feed become commits
fold              from what changed to what holds
current           the table of what holds, which follows the changes
upkeep            small files are put together, old ones removed
job               all of this, until there is nothing left or somebody stops it
"""
