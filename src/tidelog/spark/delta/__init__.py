"""What the lake and the views share of Delta tables. Neither knows the other; both build on this.

storage   the folder or object store that holds the tables
table     a table that records how far it is: its own checkpoint
commit    files come and go in one step, though other jobs commit, too
faults    what can go wrong with a table, as errors that say where
"""
