"""The real machine: a clock, a disk, object storage and a network as `ports.py` asks for them.

The engine reads the time, touches files and talks to other servers only through these; the edges (server, cli, Spark
and the like) have the machine for themselves. This package decides nothing: it does what the port says and lets the
errors of the operating system through, so that a simulation can miss little of it.

clock          the clock of this machine
disk           the disk of this machine, on POSIX calls
memory_disk    a disk in memory, for what need not last
network        the network of this machine, on the transports of asyncio or uvloop
object_store   object storage in a bucket, and which kind a URL means
object_errors  the errors of buckets, as the port promises them and without secrets
object_names   which names and parts objects may have
folder_store   object storage in a folder
whole_disk     the disk of this machine, with files that lie only in an object store
ship_store     the object store of a URL, with encryption and a limit on speed
counted_store  counts what is asked of a store
scratch        blocks of objects, kept on the disk while they are needed
key_file       the file with the key that objects are encrypted with
"""
