"""What the lake and the views share of Delta tables. Neither knows the other; both build on this.

storage   the folder or object store that holds the tables
table     a table that records how far it is: its own checkpoint
faults    what can go wrong with a table, as errors that say where
"""
