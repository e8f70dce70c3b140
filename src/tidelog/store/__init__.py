"""The state of a server: the keyspace, transactions over it, and how both get into the journal and back.

store           all state, together with the journal
shard_records   the records of an operation on a store with several shards
type_table      the types that values may have, one row each
keyspace        one database: its values by slot, and when they expire
deadlines       keys that have a time, and which of them comes first
buckets         a slot with many keys
range_removal   DELRANGE: finds the keys of a range
slots           which of the 16384 slots a key belongs to
uses            when keys were last used
libraries       libraries of functions: names and code
holds           named holders: whom the journal is kept for
hold_changes    changes them, by transactions
transaction     what a command reads and writes through
large           large strings that are made before the command that wants them runs
expiry          removes keys that have expired
dead_letters    gives up pending entries of streams that have expired or failed too often
stream_retention  streams keep what their rules say (TCONFIG)
stream_total    all streams together take at most so many bytes
watch           WATCH: tells clients that a key changed
glob            Redis's glob patterns, for keys, channels and parameters
bit_search      a part of a pattern in a string, at all places at once
scan_orders     the order in which HSCAN, SSCAN and ZSCAN walk a large collection

cooling         writes sealed nodes of streams to disk, and lets memory forget them
capture         writes a snapshot of one moment while the store goes on
string_loader   puts strings into the keyspace many at once, for a quick start
backup          copies a snapshot out of a data directory
restore         makes a new data directory from a backup
new_directory   a data directory while it is filled
restored_nodes  nodes of streams on their way into it
"""
