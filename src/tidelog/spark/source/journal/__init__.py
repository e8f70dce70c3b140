"""The kind `journal`: the records of a data directory, a backup or a snapshot.

kind   the kind and its batch reader
rows   records as rows
"""
