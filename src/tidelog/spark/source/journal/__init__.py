"""The kind `journal`: the records of a data directory, a backup or a snapshot.

kind    the kind and its batch reader
heads   heads of frames, by which records are divided among tasks
nodes   the nodes of streams that a snapshot refers to
rows    records as rows
"""
