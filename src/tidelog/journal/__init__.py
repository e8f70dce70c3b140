"""The journal: the one history of a server. Every write goes into it, and everything else reads it.

The bytes:

flit               unsigned integers in 1 to 9 bytes
record             one record: its header, its flags, its payload
frame              frames, the units in which a segment is read and proved
operation          the table of operations: what records mean
control            records about the journal itself: marks, epochs, the selected database
node_format        nodes of streams in files of their own
node_files         ... which of them there are, who needs them, and appending to them
blob               payloads that are too large for a frame, in a file of their own

The files:

layout             the data directory: its folders, its meta file, its lock
directory          finds a data directory or makes one, and gives it its id
file_copies        copies of files, and second names for those that nobody changes any more
segment            the files of a shard, and positions in them
beginning          whether a journal reaches back to its first transaction
source             where a reader's bytes come from: the ring, or the files

Writing:

writer             writes transactions in cycles, and has them fsynced
appender           takes transactions, made here or received: the first half of the writer
new_record         a record that is to be appended, as the writer takes it
open_files         the files that a writer has open, and which of them are to be fsynced
new_files          the files of a journal that counts only once it is whole
shard_writer       makes the frames of one shard: bytes only, no disk
staging            large values, written to the blob file before the command with them runs
large_bytes        large values that are made little by little, while others run
unwritten          which keys a cycle changes that there is no space for
durability         the values between the writer and the thread that fsyncs: what is visible, what is durable
ring               the newest bytes of the journal, in memory

Reading:

reader             reads one shard, while it is being written
places             finds where an lsn or a ts lies in the files of a shard
merge              puts the shards together: whole transactions in order of ts
readable           what readers of an open journal can ask it for
passes             follows the shards while they are written, for feeds and followers

Opening and recovering:

journal            an open data directory: puts all of this together
scan               recovery, first half: what of a shard's files is proved
cycles             ... and up to which cycle all shards are
loader             recovery, second half: decides what counts, cuts the rest, replays it
tail               what a start cuts off: described, and set aside first
replacement        a full sync takes the place of what a directory held
rewind             goes back to where the history is shared with another server, and sets aside what is not
excerpt            a part of a history as a journal of its own
record_runs        reads ordinary records many at a time, for a quick start

Keeping it small and quick to search:

snapshot           the state at one moment, as a journal of its own
snapshot_nodes     the node files that a snapshot lists: where they lie, and whether they are whole
pins               snapshots that stay because somebody reads their files
retention          which segments may be erased, and who still needs them
holders_file       who still needed them, as earlier versions kept it
sidecar            an index of each sealed frame: which keys it may hold

For operators:

inspection         describes segments and frames: `tidelog journal ls`
node_inspection    ... and node files
record_inspection  describes and selects records: `tidelog journal show`
verify             checks every byte of a data directory
node_audit         proves the nodes that snapshots refer to
repair             goes back to the newest sound point of a damaged journal
node_repair        notes nodes that are damaged as lost, so that a server starts
"""
