"""Replication: what a leader and a follower say to each other, and the history that is read for it.

The package stands after `feeds/`, since both read the journal again in the same way, and before `engine/`, so that
commands can ask and steer it. Nothing here waits or listens: bytes are fed in, and messages come out.

message         everything that the two say to each other, as values
kinds           the table of messages: number, sender, body
fields          the fields of a body, with bounds on all that a peer can claim
parts           parts of transactions as bytes
wire            messages to pieces with checksums, and back
incoming        puts what came in pieces together: whole transactions, in order, under the lsns that are due
shared_history  whether the position of another server lies on the history here, and if not, where the two part
history         what follows a position: read from memory or from disk, as messages
options         what an operator may set
facts           what an operator can see
"""
