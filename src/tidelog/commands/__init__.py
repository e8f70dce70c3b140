"""Commands: one row each, a file a family.

A handler decides: it reads through a transaction and returns a reply, or a reply and operations. It changes nothing
itself. What a row says is in `engine/table.py`.

families            the table of all commands
reference           docs/commands.md, made from that table

strings             strings
keys                keys of any type: DEL, EXPIRE, RENAME, SCAN, OBJECT ...
key_ranges          DELRANGE, DELPREFIX
hashes              hashes
sets                sets
sorted_sets         sorted sets: members and scores
sorted_set_pops     sorted sets: members popped, at once or when there are some
sorted_set_ranges   sorted sets: ranges by rank, score and member
sorted_set_algebra  sorted sets: union, intersection and difference
list_ends           lists: pushing, popping, and moving from one to another
list_waiting        lists: pops and moves that wait for an element
lists               lists: indexes, ranges, and elements in the middle

streams             streams: TWRITE, TEVICT, TCONFIG, TCOMPACT, TINFO
stream_reading      TREAD
stream_groups       TACK, TGROUP, and what a reader of a group is given next
x_entries           XADD, XLEN, XRANGE, XDEL, XTRIM, XSETID
x_reading           XREAD and XREADGROUP
x_groups            XGROUP and XACK
x_pending           XPENDING, XCLAIM, XAUTOCLAIM
x_info              XINFO

transactions        MULTI, EXEC, DISCARD, WATCH
functions           FUNCTION, FCALL
scripts             EVAL, EVALSHA, SCRIPT
pubsub              SUBSCRIBE, PUBLISH, PUBSUB
feeds               CHANGEFEED and FEED

connection          HELLO, AUTH, SELECT, PING, RESET ...
clients             CLIENT
command_info        COMMAND
config              CONFIG
info                INFO
slow_log            SLOWLOG
monitor             MONITOR
replication         REPLICAOF, ROLE, WAIT, FAILOVER
server              TIME, DBSIZE, FLUSHALL, SAVE, SHUTDOWN, MEMORY, DEBUG

What several families share:

arguments           reads numbers and options, with Redis's error texts
expiry_options      EX, PX, EXAT, PXAT of SET, GETEX and EXPIRE
long_double         the numbers of INCRBYFLOAT, to the last digit
timeouts            how long a client is ready to wait
drawing             members drawn at random
scanning            SCAN and its like over large collections
sorted_set_bounds   the bounds of a range of a sorted set
stream_ids          ids of entries as clients write them
stream_replies      entries of streams as replies
help                the reply of `<CONTAINER> HELP`
"""
