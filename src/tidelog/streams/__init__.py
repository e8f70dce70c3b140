"""The stream type: entries with dense offsets and time-based ids, read by groups.

The value:

stream         a stream: what changes it, its groups and producers
reading        the entries of a stream: finding and reading them
found          entries that a read has found, for now or for later
node           a run of entries: lists while it grows, sealed once it is full
rows           entries as columns, and ids as numbers
columns        quick access to the columns of a sealed node
cold           cold nodes that were read: a bounded cache, and what is to be fetched
opening        reads many cold nodes from their files
sealed_node    entries that no longer change: in memory, or in a node file
node_ipc       the bytes of a sealed node
cooling_line   sealed nodes that are to be written to node files
read_ahead     takes entries out of a sealed node many at once, for reads of a few

Groups and producers:

group          the readers of a group, and the entries that they have not acknowledged
pending_ids    the pending entries of a group in order of their ids
expiries       the pending entries of a group that expire, by time
progress       what a group reads next, and how many entries it has read, as Redis counts
producer       recognizes an append that a producer repeats

Operations:

operations     the operations on streams, as values
effects        the record of every operation, and what it does
fields         the fields that records consist of, by kind
payload        the parts that records are made of, and a reader for them
group_records  the two most frequent records of groups, encoded in one go
changes        what feeds tell about the operations
dump           a stream as the operations that make it again
stream_type    streams as a row of the table of types

Retention:

retention      which entries go by what TCONFIG said of a stream
trimming       which entries go when a stream is trimmed
compaction     which entries go when only the newest of each tag stays
"""
