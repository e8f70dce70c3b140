"""The one history: everything in Tidelog is a reader or a writer of this journal.

In reading order: `flit`, `record`, `frame`, `operation`, `control`, `blob` are the bytes; `layout` and `segment` the
files; `shard_writer`, `writer` and `ring` write; `reader` and `merge` read; `scan` and `loader` recover; `snapshot`,
`retention` and `sidecar` keep it small and quick to search; `verify` and `repair` are for the operator.
"""
