"""The kind `journal`: the records of a data directory, a backup or a snapshot.

kind    the kind and its batch reader
nodes   the nodes of streams that a snapshot refers to
rows    records as rows
"""
