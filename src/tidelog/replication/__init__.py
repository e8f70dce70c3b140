"""Replication: a history that several servers have, and who goes on with it.

The package stands after `feeds/`, since both read the journal again in the same way, and before `engine/`, so that
commands can ask and steer it. Nothing here waits or listens: links come through the network port, and everything is
state machines that are driven by calls.

replication     what a server is, whom it follows, and who follows it
role_file       the role, durable in the data directory
origin          whether the history came out of a copy in an object store
options         what an operator may set
facts           what INFO, ROLE and /metrics show
gathered_facts  gathers it from the parts
server          what all this asks of the server around it
refusals        what clients are told that a role forbids something
failover        a leader hands over to one of its followers
returning       a leader that comes back after a crash asks them first

Following:

following       the follower's state machine
leader_link     our end of the link to the leader
leader_news     what the leader has announced: how far its history goes
reception       applies what the leader sends
preparation     large payloads of it, which a thread writes and decodes
landing         a full sync as it lands
landing_disk    ... and what a thread does for it on disk
disk_queue      steps on disk that a thread does in order
giving_tail     what a leader has lost and we have kept, sent up

Being followed:

followers       all that follow us: sending, and what they have confirmed
follower_link   our end of the link to one of them
taking_tail     what we have lost and one of them has kept, as it sends it up
meeting         what a hello is answered with
waiting_publications  messages that wait for the data before them
sending_files   the files of a snapshot, piece by piece
shared_history  whether the position of another server lies on the history here, and if not, where the two part
history         what follows a position: read from memory or from disk, as messages

The link:

hello           what both ends say first
states          the states of both ends, and what they are called elsewhere
speaker         one end of a link: bytes to messages and back, deadlines
message         everything that the two say to each other, as values
kinds           the table of messages: number, sender, body
fields          the fields of a body, with bounds on all that a peer can claim
parts           parts of transactions as bytes
wire            messages to pieces with checksums, and back
incoming        puts what came in pieces together: whole transactions, in order, under the lsns that are due
"""
