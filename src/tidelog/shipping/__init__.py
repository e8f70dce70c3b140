"""History in an object store: a copy that is never far behind, and readers that need no server.

lineage        files as runs of objects, and the files of one server
manifest       what is shipped, one number after the other
manifest_log   the manifests of a database: the fence, and where readers begin
point          how far a journal is durable, for its shipper
shipper        rounds: new bytes, then a manifest that says so
succession     whether a server may go on with what is shipped
archive        what a shipper has shipped
uploads        bytes of local files on their way into objects
bulk           snapshots, full segments, small objects made one
upkeep         history that is too old, and objects that nothing refers to
moments        which moments are covered, and by which lineage
shipped_disk   a lineage as a data directory that is read
fetch          a data directory from a lineage, file by file
restoring      a new database that begins with any moment of a copy
once           a directory that no server has open, shipped to its end

Stores of objects that work through another:

sealed_store   encrypts what it puts, and opens what it reads
sealing_key    the key for that
paced_store    sends at most so many bytes a second
"""
