"""The data source `tidelog`: how Spark reads and writes what a server, or a data directory, holds.

data_source    what Spark makes for `format("tidelog")`, and the table of kinds
kind           what a kind of target offers

stream         entries of streams
feed           what changed: change feeds
days           events of day streams
journal        records of journal files
state          the keyspace as it was at a moment

batch_reader   readers of batches, and filters that Spark pushes down
micro_batches  readers without end, for `readStream`
batch_bounds   how large their batches are, and what they wait for
pieces         into how many pieces ranges are cut
loss           what happens when data is gone
lag            how far a query is behind, as its progress tells it
columns        columns that several kinds have
entry_range    which entries are read: offsets and ids
key_names      which keys a name or a pattern means
told_first     puts errors above their tracebacks

To add a kind, write one module or package with a `Kind` in it, and add one row to `KINDS` in `data_source`.
"""
