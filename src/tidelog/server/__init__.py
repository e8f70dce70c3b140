"""The server process: sockets, turns of the loop, fsyncs, and the one place where everything is wired together.

Traffic:

listener         opens ports, with or without TLS, and unix sockets
connection       one connection: bytes in, commands to the engine, replies out
socket_session   where a client is, since when, and what is on its way to it
joining          puts large arguments together, on a thread
long_reply       what is left to send of a reply with long strings or many entries
backlog          what a client has sent and the server has not run yet
activity         when a client came, and when it was last active
connections      all connections: how many there may be, and which are turned away or cut
allowed_connections   how many connections of each kind the system allows
turns            ends each turn of the loop: one write of the journal, then the replies
rounds           lets clients that send much take turns
group_commit     fsyncs the journal, one fsync for many clients
line_limit       bounds the lines of the log that strangers cause
loop_calls       lets other threads run something on the loop

The hot path, which handles runs of the same command in their plain form:

hot              strings, hashes and MULTI
hot_streams      appends to streams
hot_groups       readers of streams, and what they acknowledge
hot_lists        lists: their ends, and ranges

Work in the background:

snapshots        makes snapshots and sidecars
erasing          erases old segments of the journal, and watches the space on the disk
cooling          writes older nodes of streams to disk, on a thread
shipping         keeps a copy in an object store, on a thread
restoring        fills an empty data directory from such a copy, before it is opened
ship_target      makes that, as the configuration says
history          lets node files go from disk, and come back from such a copy
file_retries     when those that could not are tried again
scrub            reads node files slowly, to find damage
work_thread      joins and writes large values

Running it:

runtime          opens the store and the ports, starts and stops
served_store     the parts that are made of one open store
lasting_parts    what stays when the store is replaced
signals          signals that ask to stop
leftovers        what a stop leaves undone, in words
configuration    flags over the environment over `tidelog.toml`
setting_values   the values that settings may have
copy_settings    which settings about copies go together
configuration_file  what CONFIG REWRITE writes
live_parameters  what CONFIG shows and changes
replication_parameters  those about replication
encoding_parameters     those about what OBJECT ENCODING says
leader_password  what a follower says to its leader
link_call        calls a leader: password, TSYNC, and from then on a link
copy_caller      calls a copy in an object store, in the place of a leader
replicated_server  what replication asks of the server
memory           how much memory the process has
facts            the sections of INFO, and numbers for /metrics
stream_figures   what streams take in memory and on disk: INFO streams
replication_facts  INFO replication
"""
