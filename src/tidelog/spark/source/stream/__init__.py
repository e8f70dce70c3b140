"""The kind `stream`: entries of streams, read as a batch or without end, and appended.

kind            the kind and its batch reader
planning        which tasks read a stream, and which part of it each reads
reading         how a task reads its part
shipped         the same out of a copy or a data directory, without a server
micro_batches   `readStream`: where batches begin and end
offset_batches  the same by offsets, of a Tidelog
id_batches      the same by ids, of a plain Redis
columns         entries as columns
copied          entries of a stream that was copied or renamed, for those who follow a feed
standing        the entries that a stream has when a reader of a feed begins with the values of now
writing         rows become entries, each exactly once
"""
