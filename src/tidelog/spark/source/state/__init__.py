"""The kind `state`: the keyspace as it was at a moment, from a copy or a data directory.

kind     the kind and its batch reader
rows     keys and their values as rows
"""
