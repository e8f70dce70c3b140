"""The stream type: runs of entries with dense offsets and time-based ids, read by groups.

rows         entries as columns, ids as numbers
node         a run of entries: plain lists while it grows, an Arrow record batch once it is sealed
cold         compressed nodes, and the bounded cache of those that were opened again
stream       the value of a key: nodes, where they begin, groups, producers
group        who has been given what, and what is not acknowledged yet
pending_ids  what is not acknowledged, in order of ids
progress     how far a group has come, as Redis counts
producer     who writes again what may have arrived already
operations   what changes a stream, as values
effects      the record of every operation, and what it does
changes      what feeds tell about the operations
dump         a stream as the operations that make it again
stream_type  streams as a row of the table of types
trimming     what goes when a stream is trimmed
compaction   of all entries with one tag, the newest stays
"""
