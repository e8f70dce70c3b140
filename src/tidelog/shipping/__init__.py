"""History in an object store: a copy that is never far behind, and readers that need no server.

lineage        files as runs of objects, and the files of one server
manifest       what is shipped, one number after the other
manifest_log   the manifests of a database, and where readers begin
fence          of two servers that ship a database, one is told so
point          how far a journal is durable, for its shipper
shipper        rounds: new bytes, then a manifest that says so
succession     whether a server may go on with what is shipped
archive        what a shipper has shipped
uploads        bytes of local files on their way into objects
bulk           snapshots, full segments, small objects made one
upkeep         history that is too old, and objects that nothing refers to
doubted_clock  the time, for what is deleted by its age
moments        which moments are covered, and by which lineage
shipped_disk   a lineage as a data directory that is read
fetch          a data directory from a lineage, file by file
restoring      a new database that begins with any moment of a copy
once           a directory that no server has open, shipped to its end

Node files that lie only in the object store:

remote_file    the description that stands for one
remote_blocks  reads parts of them, through ...
block_cache    ... a bounded cache on disk
tiered_disk    a disk on which they look as if they were there
copied_files   which files may go, and which need not come back
dropping       a file goes from disk
hydration      and comes back

A server that follows a copy, without a leader to connect to:

copy_reader     the newest manifest, again and again
copied_journal  what it calls shipped, as the journal that a follower is sent from
copy_session    what a leader would answer and send
copy_link       the replication link over which that comes

Stores of objects that work through another:

sealed_store   encrypts what it puts, and opens what it reads
sealing_key    the key for that
paced_store    sends at most so many bytes a second
"""
