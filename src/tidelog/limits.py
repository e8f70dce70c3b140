"""Every bound in Tidelog, in one place, and the relations between them.

A queue, buffer or loop that can grow names its bound here. Values that an operator may set are the defaults of
the configuration; the rest are constants of the format.

They are constants although nothing says `Final`: the compiler would write such a value into every module that uses it,
and a test could not make it small. Where looking one up is too slow, a module keeps its own as `Final`.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US

# --- hybrid clock -----------------------------------------------------------------------------------------------

CLOCK_BOUND_AHEAD_WALL_US = 10 * SECOND_US
"""The durable upper bound lies this far above the wall clock ..."""
CLOCK_BOUND_AHEAD_LAST_US = 1 * SECOND_US
"""... and at least this far above the last ts."""
CLOCK_BOUND_RENEW_US = 5 * SECOND_US
"""With less than this left, the bound is renewed in the background, before a ts has to wait for it."""
CLOCK_REMOTE_AHEAD_MAX_US = 60 * SECOND_US
"""A remote ts further ahead of the wall clock than this is refused: it would drag our clock into the future."""

# --- the Redis protocol -----------------------------------------------------------------------------------------

ARGUMENTS_MAX = 1_048_576
"""Of one command."""
BULK_BYTES_MAX = 512 * MIB
"""Of one argument (`proto-max-bulk-len`)."""
INLINE_BYTES_MAX = 64 * KIB
"""Of a line: an inline command, or a length."""
UNAUTHENTICATED_ARGUMENTS_MAX = 10
UNAUTHENTICATED_BULK_BYTES_MAX = 16 * KIB
UNAUTHENTICATED_PIECE_BYTES = 2 * KIB
"""What a client that has not authenticated sends is decoded and run in pieces of this size."""
UNAUTHENTICATED_AT_ONCE_BYTES = 256
"""Instead of `AT_ONCE_BYTES`."""
UNAUTHENTICATED_OUTPUT_BYTES_MAX = 16 * KIB
"""Such a client is cut if it leaves more of its replies unread (on top of what the system buffers) ..."""
UNAUTHENTICATED_UNREAD_S_MAX = 10
"""... or anything at all for longer than this."""
CUT_LOGGED_S = 10
"""How often the log tells that clients are cut; those in between are counted."""
PUBSUB_BUFFER_BYTES_MAX = 32 * MIB
"""Unread messages of a client that listens; past it the connection is cut."""
PUBSUB_BUFFER_SOFT_BYTES = 8 * MIB
"""... and so it is if this much stays unread ..."""
PUBSUB_BUFFER_SOFT_S = 60
"""... for this long."""
COMMAND_BYTES_MAX = 1 * GIB
"""Arguments of one command; past it the connection is cut (`client-query-buffer-limit`)."""
QUEUED_BYTES_MAX = 1 * GIB
"""Arguments of the commands of one MULTI; past it the connection is cut too."""
RECEIVED_PIECE_BYTES = 32 * KIB
"""What a client sends is decoded and run in pieces of this size ..."""
TURN_PIECES_MAX = 32
"""... and of all that clients send, so many pieces in one turn of the loop ..."""
TURN_US_MAX = 2000
"""... within this time. The rest waits for the next turn."""
CLOCKED_COMMANDS = 64
"""After so many commands of a piece, the clock is asked whether the turn's time is over; a long one ends the piece."""
DECODED_COMMANDS_MAX = 1024
"""Short lines (inline commands, or empty ones) that are decoded at once."""
AT_ONCE_BYTES = 1 * KIB
"""A client that sends no more than this never waits for its go."""
UNREAD_BYTES_MAX = 64 * KIB
"""With this much received and not decoded yet, no more is read from a client."""
HOT_VALUE_BYTES_MAX = 16 * KIB
"""Larger values take the general path, which counts what it makes the server hold."""
HOT_RANGE_ELEMENTS_MAX = 1024
"""A longer range of a list takes the general path."""
LONG_REPLY_BYTES_MIN = 1 * MIB
"""A reply with a string of this size is sent in pieces, as the client takes them, and never copied as a whole ..."""
SENT_PIECE_BYTES = 1 * MIB
"""... of this size."""
LATER_ENTRIES_MIN = 4000
"""A reply with as many entries of a stream is sent in pieces, too: each is made when the one before was taken."""
REPLIES_BYTES_HELD = 1 * MIB
"""With replies of this size made and not taken yet, the other commands of a client wait."""
CLIENTS_MAX = 10_000
HTTP_CONNECTIONS_MAX = 1000
"""Beside those that may be feeds; past it, one that waits for a request makes room for a new one."""
HTTP_PER_ADDRESS_DEFAULT = 256
"""Of one address other than this machine (`--http-per-address`)."""
HTTP_HEADERS_S_MAX = 10
"""From the first byte of a request, or from connecting, to the end of its headers ..."""
HTTP_BODY_S_MAX = 10
"""... and from there to the end of its body."""
HTTP_HEADERS_BYTES_MAX = 64 * KIB
"""Headers of one request."""
HTTP_IDLE_S_MAX = 30
"""Between two requests."""
HTTP_PIPELINED_BYTES_MAX = 64 * KIB
"""Of requests that come while another is being answered. With more ..."""
HTTP_PIPELINED_S_MAX = 10
"""... that answer may take so long."""
HTTP_CLOSING_S_MAX = 5
"""For a client to take what was sent before its connection is closed."""
LOGGED_LINES_MAX = 10
"""Lines of the log about requests that make no sense, a minute."""
LOGGED_LINES_S = 60
WRONG_PASSWORDS_FREE = 3
"""Wrong passwords of one address that are answered at once ..."""
WRONG_PASSWORD_DELAY_S = 0.1
"""... how long the next is put off, and twice that the one after it ..."""
WRONG_PASSWORD_DELAY_S_MAX = 3.0
"""... up to this long ..."""
WRONG_PASSWORDS_FORGOTTEN_S = 60
"""... until there was none for so long."""
WRONG_PASSWORDS_FLOOD = 100
"""After so many of one address ..."""
WRONG_PASSWORDS_FLOOD_S = 10
"""... within this time, no password from there is compared for the rest of it."""
WRONG_PASSWORDS_ADDRESSES_MAX = 10_000
"""Addresses that are remembered for it."""
KEEPALIVE_S = 300
DEBUG_SLEEP_S_MAX = 60
SLOW_LOG_MAX = 100_000
"""Slow commands that are remembered, whatever is asked for."""
MONITORS_MAX = 16
"""Clients that monitor: each is sent every command."""
MONITORED_BYTES_MAX = 16 * KIB
"""Arguments of one command that monitors are shown; of more, how much it is."""
ERROR_CODES_MAX = 128
"""Codes of error replies that are counted apart."""
TIMER_S_MAX = 86_400
"""Longer timers are set again in between."""
WAITED_KEYS_MAX = 16_384
"""Keys that one client waits for; a command that names more, and would have to wait, is refused."""
STOP_S_MAX = 5
"""How long a stop waits for the disk, and for clients to take their replies."""
RELOAD_S_MAX = 2
"""The same for a server that replaces its data, and is not there for others meanwhile."""
WAITING_TURNS_MAX = 10_000
"""Turns of the loop whose replies wait for an fsync; past it nothing more is read from clients."""
WAITING_REPLIES_BYTES_MAX = 64 * MIB
"""... and so it is with this much in them."""

# --- feeds ------------------------------------------------------------------------------------------------------

FEEDS_MAX = 10_000
FEED_SPANS_MAX = 10_000
"""Of one feed."""
FEED_BUFFER_BYTES = 4 * MIB
"""What waits for a slow reader; past it its feed goes back to the journal."""
CATCH_UPS_MAX = 8
"""Feeds that read the journal at the same time; the others wait for their turn."""
FEED_EVENTS_AT_ONCE = 256
FEED_SENT_BYTES = 256 * KIB
"""What a feed gathers before it sends, give or take a record ..."""
FEED_PIECE_BYTES = 256 * KIB
"""... and a string of an event that is larger than this is not gathered: it is sent in pieces of this size."""
FEED_PROVED_BYTES_AT_ONCE = 1 * MIB
"""Of a large value in the journal that are checked before others have their turn."""
FEED_SLICE_US = 2000
"""Reading for feeds goes on for so long before others have their turn ..."""
FEED_LIVE_SLICE_US = 10_000
"""... and so does handing out what has become visible to those that have caught up."""
RANGE_KEYS_AT_ONCE = 20_000
"""In a larger database DELRANGE looks for its keys step by step, so that others do not wait ..."""
RANGE_SLICE_US = 2000
"""... for longer than so."""
FEEDS_SHOWN_MAX = 100
"""In INFO; FEED LIST has all."""
FEED_PLACE_RECORD_BYTES = 128
"""What a record counts for where somebody reads so many of them: a batch has at most as many bytes ..."""
FEED_PLACE_FRAMES_MIN = 4
"""... or so many frames."""
FEED_CHECKPOINT_MS_MIN = 10
FEED_CHECKPOINT_MS_MAX = 3_600_000
FEED_CHECKPOINT_MS_DEFAULT = 1000
FEED_REPEATS_DEFAULT = 20
"""How often the same history is begun by the same reader at once ..."""
FEED_REPEATS_MAX = 1_000_000
FEED_REPEAT_US = 10 * SECOND_US
"""... before it is begun only once in so long ..."""
FEED_REPEAT_DELAY_US_MAX = 60 * SECOND_US
"""... and the longest that one waits ..."""
FEED_REPEATS_KEPT = 10_000
"""... and how many such places are remembered."""
HTTP_FEEDS_DEFAULT = 1000
"""Feeds over HTTP; further requests are told to come back later."""
HTTP_FEED_BUFFER_BYTES = 128 * KIB
"""What waits for a slow reader over HTTP; past it its feed goes back to the journal."""
HTTP_FEED_EVENTS_AT_ONCE = 64
"""Events that are written as JSON before others have their turn."""
HTTP_FEED_SILENT_S_MAX = 10
"""After so long without an event, a feed over HTTP shows that it is alive."""
FEED_TAKEN_S_MAX = 5.0
"""How long `tidelog feed --name` waits at its end until its reader has taken all out of the pipe."""
FEED_ACK_BYTES_AT_ONCE = 65536
FEED_ACK_LINE_BYTES_MAX = 64 * MIB
"""Of a line of --ack-from, which may be an event."""
FEED_EXEC_BYTES = 8 * MIB
FEED_EXEC_EVENTS = 10_000
"""A batch of --exec ends with a checkpoint, or when it has so much ..."""
FEED_EXEC_PAUSE_S_MIN = 1.0
FEED_EXEC_PAUSE_S_MAX = 60.0
"""... and is given to the command again after such a pause if that fails."""
FEED_ORDERED_BYTES_MAX = 256 * MIB
"""Keys and values that `tidelog feed --ordered` keeps until a checkpoint says that their order is known."""

# --- replication ------------------------------------------------------------------------------------------------

REPLICATION_PIECE_BYTES_MAX = 256 * KIB
"""Of one piece of a link: what a peer can make the other side hold before it is proved ..."""
REPLICATION_PARTS_BYTES = 64 * KIB
"""... and what a piece with transactions has, about ..."""
REPLICATION_LONG_BYTES = 32 * KIB
"""... where each payload is smaller than this: larger ones follow by themselves ..."""
REPLICATION_PAYLOAD_BYTES = 128 * KIB
"""... in pieces of this size, as files of a full sync do."""
REPLICATION_STAGED_BYTES_MIN = 4 * MIB
"""A payload that is received of this size is written to the blob file and put together by a thread."""
REPLICATION_READ_BYTES = 256 * KIB
"""Of the history that is read for a follower at once, about."""
REPLICATION_RECORDS_MAX = 2**26
"""Of one transaction that a peer sends: far more than any command makes. Its bytes have the bound that all have."""
REPLICATION_EPOCHS_BYTES_MAX = 128 * KIB
"""Newest epochs that one server tells another when they meet."""
REPLICATION_TEXT_BYTES_MAX = 1 * KIB
"""Of a reason, an address or the name of a file."""
REPLICATION_FILES_MAX = 100_000
"""Files of a full sync ..."""
REPLICATION_UNFINISHED_MAX = 1000
"""... and those of an unfinished one that a follower tells of; others are sent again."""
REPLICATION_SILENCE_S = 10.0
"""A peer that is not heard of for so long is taken for gone."""
REPLICATION_MEETING_S = 10.0
"""For the hello of a peer."""
REPLICATION_CONNECT_S = 3.0
"""For connecting to one: a host that is off answers nothing, and is asked anew in time to find it when it is back."""
REPLICATION_CHAIN_MAX = 16
"""Servers from one to its leader: a longer chain is taken for a circle, in which nobody leads."""
REPLICATION_ANNOUNCE_US = 100 * 1000
"""Between two announcements of a leader ..."""
REPLICATION_ACKNOWLEDGE_US = 1 * SECOND_US
"""... and between two acknowledgements of a follower, if nothing has changed."""
REPLICATION_BACKOFF_S_MIN = 0.1
"""Before a follower tries again, doubled each time ..."""
REPLICATION_BACKOFF_S_MAX = 2.0
"""... up to here."""
REPLICATION_PACE_US = 1000
"""Between two sends to followers, unless somebody waits for their confirmation: a send costs as much as several writes
of a client do, and a turn may have only one."""
REPLICATION_PUMP_BYTES = 512 * KIB
"""What one follower is sent before others get their turn."""
REPLICATION_PUBLICATIONS_BYTES_MAX = 4 * MIB
"""Of published messages that wait for one follower, because it has not got what came before them."""
REPLICATION_RETURN_S = 5.0
"""So long a leader that is back after a crash waits for the followers it had, and for more of what one sends back."""
REPLICATION_TAIL_LOOK_S = 0.1
"""How often it looks whether that still goes on."""
LANDING_SYNC_BYTES = 8 * MIB
"""What is written of a full sync between two fsyncs."""
LANDING_WAITING_BYTES_MAX = 8 * MIB
"""What a full sync has brought and the disk has not taken; with more, no more is received for now."""
FOLLOWERS_MAX = 64
"""Links of one server to servers that follow it ..."""
FOLLOWERS_KNOWN_MAX = 64
"""... and those that it remembers ..."""
FOLLOWER_FORGOTTEN_US = 3600 * SECOND_US
"""... after a link has ended, for so long."""
FOLLOWER_FORGOTTEN_RETRY_US = 60 * SECOND_US
"""Until the next attempt to forget one, if the disk was full."""

# --- links between servers --------------------------------------------------------------------------------------

LINK_UNSENT_BYTES_MAX = 1 * MIB
"""With more than this unsent, a link has no room: its sender is to wait ..."""
LINK_ROOM_BYTES = 256 * KIB
"""... until no more than this is left."""
LINK_LET_OTHERS_BYTES = 64 * KIB
"""When so much has come at once, others have their turn before more is read from a link."""
LINK_ACCEPT_PAUSE_S = 1.0
"""After an attempt to accept one for which there was no descriptor or memory."""
LINK_HANDSHAKE_S = 10
"""For the handshake of TLS, on either side."""
LINK_CLOSING_S = 5.0
"""For the peer to take what was sent before the end; with TLS, also to agree to it. Then the link is reset."""

# --- the Python client ------------------------------------------------------------------------------------------

CLIENT_CONNECT_S_MAX = 10.0
CLIENT_SILENT_S_MAX = 30.0
"""A feed on which not a byte came for so long, and three checkpoints more, has lost its connection."""
CLIENT_FEED_READ_BYTES = 256 * KIB
"""Of a feed that are taken from the socket at a time."""
CLIENT_RECONNECT_S_MIN = 0.05
CLIENT_RECONNECT_S_MAX = 5.0
"""Between these, doubling, a feed waits before it connects again."""
CLIENT_START_S_MAX = 30.0
"""So long, at its start, a reader waits for several servers of which none answers: perhaps none of them is right."""
CLIENT_ASK_S_MAX = 2.0
"""How long one of several servers may take to say whether it leads ..."""
CLIENT_SEARCHES_MAX = 25
CLIENT_SEARCH_PAUSE_S_MAX = 1.5
"""... and how often they are asked again, with such pauses, while none of them does: for about half a minute."""
TAIL_REMEMBERED_ENTRIES = 10_000
TAIL_REMEMBERED_BYTES = 8 * MIB
"""What `tidelog stream tail --follow` reads again after a lost connection, to compare it with what it has printed."""
CLIENT_CHANNEL_ACK_S = 1.0
"""A reader of a channel acknowledges what was handled at least so often, if messages are handled at all."""
CLIENT_CHANNEL_LEAVE_S = 10.0
"""How long a reader that ends tries to acknowledge what was handled."""
CLIENT_FEED_REMEMBERED_MAX = 100_000
"""Transactions since the last checkpoint of which a feed knows what it has delivered; older ones may come twice."""

# --- the keyspace -----------------------------------------------------------------------------------------------

DATABASES = 16
SLOT_KEYS_SPLIT = 1000
"""A slot with more keys than this is split into buckets, so that visiting one is a short step."""
LOADED_AT_ONCE_MIN = 1000
"""Strings that are worth sorting by slot while loading; fewer are put one by one."""
LOADED_AT_ONCE_BYTES = 16 * MIB
"""Of the journal that is gathered while loading before its strings are put."""
CAPTURE_KEYS_AT_ONCE = 200
"""Keys of a snapshot that are written in one go where nobody waits."""
CAPTURE_SLICE_S = 0.00015
"""How long a snapshot may hold up others at a time, while there are others ..."""
CAPTURE_PAUSE_S = 0.001
"""... how long it then lets them be ..."""
CAPTURE_IDLE_SLICE_S = 0.005
"""... and how long it goes on when there are none."""
EXPIRED_AT_ONCE_MAX = 1000
"""Keys that one pass of active expiry removes."""
EXPIRY_STALE_MAX = 10_000
"""Keys that wait for their expiry and may be stale, beyond as many as are valid."""
SCAN_WHOLE_MAX = 512
"""A hash, set or sorted set of at most this many members is scanned in one step."""
SCAN_ORDERS_MAX = 64
"""Scans of larger ones whose order is remembered ..."""
SCAN_ORDER_MEMBERS_MAX = 4_000_000
"""... members in all of them, unless the newest alone has more ..."""
SCAN_ORDER_MS_MAX = 60_000
"""... and for how long."""
DRAWN_MEMBERS_MAX = 1_048_576
"""What SRANDMEMBER and its relatives draw with repetition in one reply."""

PATTERN_WORK_MAX = 2**33
"""The size of a name times that of a pattern that is looked for in it: about half a second; past it, it is refused."""
PATTERN_NUMBERS_BITS_MAX = 2**29
"""What is remembered of a name meanwhile."""

# --- scripts ----------------------------------------------------------------------------------------------------

SCRIPT_TIME_MS_DEFAULT = 1000
"""How long a script may run; twice as long once it has written (a default)."""
SCRIPT_TIME_MS_MAX = 60_000
SCRIPT_MEMORY_BYTES_DEFAULT = 64 * MIB
"""What the values of a script may take (a default)."""
SCRIPT_MEMORY_BYTES_MIN = 8 * MIB
SCRIPT_MEMORY_BYTES_MAX = 1 * GIB
SCRIPT_BYTES_MAX = 1 * MIB
"""The text of a script: compiling cannot be interrupted."""
SCRIPT_BRANCHES_MAX = 10_000
"""The words `and`, `or`, `elseif` and `break` in it: the compiler's work grows with their number squared."""
SCRIPT_WORDS_MAX = 16_384
"""Different names, texts and numbers in it: if their hashes are alike, the compiler's work grows with the square."""
SCRIPT_LOOKS_MAX = 50_000_000
"""Local names that the compiler looks at, over all names in it: a second has several times as many."""
SCRIPT_REPLY_DEPTH_MAX = 128
"""Tables inside each other in what a script returns; in the place of what is deeper there stands an error."""
SCRIPT_WRITTEN_BYTES_MAX = 256 * MIB
"""What a script writes; further writes are refused. The disk takes it after the script, and everybody waits for it."""
SCRIPT_FLAT_ITEMS_MAX = 1000
"""An array of a reply that is longer is read by the script's own side: Lua's stack takes only so many values."""
SCRIPT_WORDS_AT_ONCE = 200
"""Arguments that are handed to Lua in one call, between two looks at the clock."""
LIBRARIES_MAX = 1000
"""Libraries of functions; FUNCTION LOAD of one more is refused ..."""
LIBRARIES_BYTES_MAX = 16 * MIB
"""... and so is code beyond this, over all of them."""
LIBRARY_FUNCTIONS_MAX = 1000
"""Functions of one library."""
LIBRARY_LOAD_MS_MAX = 500
"""How long the code of a library may run when it is loaded ..."""
LIBRARIES_LOAD_MS_MAX = 1000
"""... and all of them: they are loaded again, within one command, whenever there is a new interpreter."""
LIBRARY_RETRY_S = 10
"""When a library that could not be loaded is tried again."""
SCRIPTS_PASSING_MAX = 500
"""Scripts of EVAL that EVALSHA finds; as in Redis 7.4 the one used longest ago goes first ..."""
SCRIPTS_PASSING_BYTES_MAX = 32 * MIB
"""... and the size of their texts."""
SCRIPTS_KEPT_BYTES_MAX = 64 * MIB
"""The size of the scripts of SCRIPT LOAD; more are refused."""

# --- streams ----------------------------------------------------------------------------------------------------

NODE_ENTRIES_MAX = 1000
"""A node is sealed with as many entries ..."""
NODE_BYTES_MAX = 4 * MIB
"""... or with as many bytes; a larger entry is a node alone."""
NODE_FILE_BYTES_MAX = 256 * MIB
"""Past this size a node file is full, and the next one begins."""
NODE_FILE_SPARSE_PART = 0.5
"""If less than this part of a full node file is needed, that is written to another."""
RECORD_NODES_MAX = 512
"""Cold nodes that one record of a snapshot refers to."""
OPENED_NODES_BYTES_MAX = 64 * MIB
"""Cold nodes that were read, or just written, stay open up to this much ..."""
WRITTEN_NODES_OPEN_S = 1
"""... and those that nobody reads for this long after they were written (up to twice that)."""
HOT_STREAM_PART = 1 / 16
"""Of the machine's memory: what sealed nodes may take together before even the last ones become cold."""
TIGHT_MEMORY_PART = 0.9
"""The same happens when the process takes this part of `maxmemory`."""
FETCHED_BYTES_MAX = 256 * MIB
"""What a command may need of cold nodes, opened: more is an error that asks for fewer entries."""
FETCHED_TOGETHER_BYTES_MAX = 512 * MIB
"""The same of all commands that are fetched for at a time: others wait for their turn."""
FETCHES_AT_ONCE = 2
"""Threads that read cold nodes."""
FETCHED_TIMES_MAX = 8
"""How often a command is fetched for, if streams change meanwhile, before it reads the rest while others wait."""
COMPACTED_AT_ONCE_BYTES = 2 * MIB
"""TCOMPACT looks at so much of a stream, opened, and then lets others have their turn."""
FETCHED_PIECE_BYTES = 8 * MIB
"""A thread reads so much of one file before it opens it."""
AHEAD_NODES_MAX = 8
"""When a stream is read on from where the last read ended, so many more nodes are fetched ..."""
AHEAD_BYTES_MAX = 4 * MIB
"""... or so many bytes, opened."""
SCANS_REMEMBERED_MAX = 64
"""Streams of which it is known where the last read ended."""
UNREADABLE_PLACES_LOGGED_MAX = 1000
"""Nodes that cannot be read are logged once each, up to so many."""
HOT_NODES_KEPT = 3
"""Of the sealed nodes of a stream, so many stay in memory: the last ones."""
COOLED_AT_ONCE_BYTES = 8 * MIB
"""Nodes that are written and fsynced together take this much in memory, or little more ..."""
COOLING_RETRY_S = 1
"""... and are tried again after so long if that fails."""
REPLAY_SPILL_BYTES = 16 * MIB
"""While history is replayed: when nodes that may become cold take so much, they are written to disk at once."""
SCRUB_BYTES_PER_S = 4 * MIB
"""Node files are read by the scrub at this rate, on average ..."""
SCRUB_SLICE_BYTES = 1 * MIB
"""... this much at a time, or one node ..."""
SCRUB_REST_S = 3600
"""... and anew after so long."""
GIVEN_BACK_BYTES_MIN = 8 * MIB
"""When so much has become cold, and no more is in line, the system is given the memory back ..."""
GIVEN_BACK_S = 10
"""... and after so long also if more is in line: while that happens, what else asks for memory waits some ms ..."""
GIVEN_BACK_TIGHT_S = 1
"""... or so long, if more is in memory than may be."""
COLD_AFTER_S = 60
"""The last nodes of a stream, and an active one, become cold if it does not grow for this long (up to twice that)."""
COOLING_SLICE_S = 0.0005
"""How long the search for such nodes may hold up others, ten times a second."""
NODES_LOOKED_AT_ONCE = 1000
"""Nodes of one stream that are looked at between two looks at the clock."""
IDLE_SEAL_ENTRIES_MIN = 100
"""An idle active node with fewer entries stays as it is: sealing it would save nothing."""
RULED_STREAMS_AT_ONCE_MAX = 200
"""Streams with a rule (TCONFIG) that are looked at ten times a second; of more, each has its turn ..."""
EVICTED_NODES_AT_ONCE_MAX = 1000
"""... and nodes of streams that go at once, by rules or because all streams take too much."""
STREAMS_COUNTED_EVERY_MS = 60_000
"""With `stream-bytes-max`, streams are counted so often, and sooner if they have grown ..."""
STREAMS_COUNTED_KEYS_AT_ONCE = 5000
"""... by a visit of all keys, so many of them ten times a second."""
STREAMS_STUCK_WARNED_MS = 3_600_000
"""The log says so seldom that they are too large and nothing may go."""
PRODUCER_SEQS_KEPT = 1024
"""Calls of a producer whose offsets are remembered, at least ..."""
PRODUCERS_MAX = 1024
"""... and producers of one stream; of more, the one that was silent the longest is forgotten."""
PRODUCER_NAME_BYTES_MAX = 256
PENDING_MAX_DEFAULT = 10_000
"""Entries of a group that may wait for an acknowledgement before TREAD gives out no more (MAXPENDING)."""
PENDING_STALE_MAX = 1000
"""Expiries of a group that may be listed in vain, beyond twice as many as entries are pending."""
GIVEN_UP_ENTRIES_MAX = 1000
"""Pending entries that a group gives up in one transaction ..."""
GIVEN_UP_BYTES_MAX = 1 * MIB
"""... and their bytes, as far as they go to a dead-letter stream; a larger one goes alone ..."""
GIVEN_UP_OPENED_BYTES_MAX = 64 * MIB
"""... and what the nodes take, opened, that those bytes are read from."""
EXPIRED_PENDING_AT_ONCE_MAX = 10_000
"""Pending entries that one pass gives up because they have expired ..."""
EXPIRED_PENDING_BYTES_MAX = 16 * MIB
"""... and bytes that it journals; ten times a second."""
DEAD_LETTERS_RETRY_MS = 1000
"""After how long a dead-letter stream that cannot be written is tried again ..."""
DEAD_LETTERS_WARNED_MS = 60_000
"""... and how often the log says so, at most."""
READ_ENTRIES_MAX = 1_000_000
"""Entries, and nils for evicted ones, in the reply of one TREAD."""
TRIMMED_TOGETHER = 100
"""XADD and XTRIM with `~` remove so many offsets at a time: the nodes of Redis (`stream-node-max-entries`) ..."""
TRIMMED_ENTRIES_MAX = 100 * TRIMMED_TOGETHER
"""... and no more entries at once, unless they are given a LIMIT."""
CONSUMER_SEEN_MS = 1000
"""How often it is journaled that a consumer was seen that finds nothing: each time would be a record."""
TOMBSTONE_KEPT_MS = 24 * 3600 * 1000
"""How long compaction keeps an empty entry."""

# --- Flight -----------------------------------------------------------------------------------------------------

FLIGHT_REQUEST_BYTES_MAX = 64 * KIB
FLIGHT_SLICE_BYTES_MAX = 32 * MIB
"""Of a stream that a reader holds at a time."""
FLIGHT_BATCH_ROWS = 16_000
FLIGHT_BATCH_BYTES = 768 * KIB
"""Nodes are joined to batches of about this many entries or bytes: joining copies, which large entries need not be."""
FLIGHT_PART_BYTES = 64 * MIB
"""Of one part of a stream that is to be read side by side."""
FLIGHT_APPENDED_ROWS_MAX = 1_000_000
FLIGHT_APPENDED_BYTES_MAX = 256 * MIB
"""Of one batch, which is one transaction."""
FLIGHT_STREAMS_LISTED_MAX = 10_000

# --- day streams ------------------------------------------------------------------------------------------------

DAYS_BATCH_BYTES_MAX = 4_000_000
"""Events of one compressed batch, before compression; a larger event is a batch alone ..."""
DAYS_BATCH_MESSAGES_MAX = 100_000
"""... and so many of them: a reader holds an open batch as a whole, and tiny events take hundreds of bytes each."""
DAYS_EVENT_BYTES_MAX = 64 * MIB
"""A larger event is refused by writers ..."""
DAYS_BATCH_OPENED_BYTES_MAX = 256 * MIB
"""... and a batch that says it opens to more than this is damaged."""
DAYS_NAME_BYTES_MAX = 1024
"""Of a queue or a job set."""
DAYS_WRITE_MESSAGES_MAX = 1000
"""Messages that are written in one transaction ..."""
DAYS_WRITE_BYTES_MAX = 4 * MIB
"""... unless they have more bytes; a larger one is written alone."""
DAYS_AHEAD_S_MAX = 3600.0
"""A message whose time or id lies further ahead of the writer's clock is late, unless the writer is told otherwise."""
DAYS_ATTEMPTS_MAX = 100
"""How often a transaction is tried that others come in between of."""
DAYS_ATTEMPT_PAUSE_S_MAX = 0.05
DAYS_LATE_LOOKED_THROUGH = 256
"""Newest late messages among which one that comes again is found."""
DAYS_LATE_AT_ONCE = 32
DAYS_PAGE_ENTRIES_MAX = 500
"""Entries of a hot stream that are read at a time ..."""
DAYS_PAGE_BYTES = 4 * MIB
"""... fewer if they are large: the next page is to have about this much."""
DAYS_BLOCK_S_MAX = 1.0
"""How long one call waits for entries: below the time after which clients give a connection up."""
DAYS_INDEX_S = 1.0
"""How often a reader that waits for the next day looks into the index ..."""
DAYS_INDEX_SAME_DAY_S = 5.0
"""... and one whose stream is of the current day."""
DAYS_FENCE_MS = 3_600_000
"""How long the fence of a job set stays whose job was killed."""
DAYS_SAVING_MIN = 0.1
"""A day is compressed if that saves at least this share of its memory, unless the job is told otherwise."""
DAYS_COMPRESS_ATTEMPTS_MAX = 5
"""How often a day is begun anew that was appended to while it was compressed."""
DAYS_INPUT_BYTES_AT_ONCE = 1 * MIB
DAYS_LINE_BYTES_MAX = 2 * DAYS_EVENT_BYTES_MAX
DAYS_CLAIM_IDLE_MS = 60_000
"""What a consumer has not acknowledged for so long is taken over by another."""
DAYS_SCAN_KEYS = 1000
DAYS_SCAN_INDEXES = 256
"""Keys that a server looks at for one SCAN, and indexes that are read together."""
LEASE_MS_DEFAULT = 30_000

# --- channels ---------------------------------------------------------------------------------------------------

CHANNEL_MESSAGE_BYTES_MAX = 1 * MIB
"""The content of one message; a larger one is refused."""
CHANNEL_PUBLISH_MESSAGES_MAX = 256
"""Messages that are published together ..."""
CHANNEL_PUBLISH_BYTES_MAX = 4 * MIB
"""... and the bytes of all of them; more are refused."""
CHANNEL_INPUT_BYTES_AT_ONCE = 1 * MIB
"""Of the input of `tidelog channel pub` that are taken at a time ..."""
CHANNEL_PUBLISH_AWAY_S = 60.0
"""... and how long it waits for a server that has gone away."""
CHANNEL_PIPE_LOOK_S = 0.25
"""How often `tidelog channel sub` looks whether its reader has taken something out of the pipe."""
CHANNEL_FETCH_MESSAGES_DEFAULT = 64
CHANNEL_FETCH_MESSAGES_MAX = 1024
"""Messages of one fetch; a caller that asks for more is refused."""
CHANNEL_FETCH_BYTES = 1 * MIB
"""Bodies of one fetch; a fetch ends before the message that goes past it, unless it is the first."""
CHANNEL_FETCH_AT_ONCE = 16
"""Bodies that the script of a fetch asks for at a time: so many, too large for the fetch, are read in vain."""
CHANNEL_LOOKED_AT_MAX = 4096
"""Clocks that one fetch looks at, whether their messages are still there or not: a long gap takes several."""
CHANNEL_EXPIRE_MS_MIN = 1000
CHANNEL_EXPIRE_MS_MAX = 366 * 86_400_000
"""How long a channel may keep its messages."""
CHANNEL_EXPIRE_MS_DEFAULT = 30 * 60_000
CHANNEL_POLL_S_MAX = 3600.0
"""How long a fetch may wait for a message."""
CHANNEL_CALLS_MAX = 64
"""Calls to the backend that are under way at the same time, and so connections (of a cluster: to one node)."""
CHANNEL_REPLY_S_MAX = 10.0
"""How long a reply of the backend may take; then the call is sent again ..."""
CHANNEL_ATTEMPTS_MORE = 3
"""... so often, which is right for every call: each may be repeated ..."""
CHANNEL_RETRY_S_MIN = 0.05
CHANNEL_RETRY_S_MAX = 0.5
"""... after such pauses."""
CHANNEL_CONFIRM_MS_DEFAULT = 2000
"""How long a publish waits for replicas, if it is to."""
CHANNEL_CONFIRM_ATTEMPTS = 5
"""How often a publish that is to be confirmed is sent while the slots of a cluster move, or a node fails over."""
CHANNEL_WAKES_MAX = 20_000
"""Channels that one process listens to; those who wait for another channel look every `CHANNEL_LOOK_S` ..."""
CHANNEL_WAKES_LINGER_S = 10.0
"""... how long it goes on when nobody waits any more: the next poll of the same client comes soon ..."""
CHANNEL_WAKES_AT_ONCE = 512
"""... and names of one SUBSCRIBE."""
CHANNEL_LOOK_S = 5.0
"""How often one who waits looks without being told, give or take a fifth: a wake may get lost."""
CHANNEL_WAKES_SILENT_S = 10.0
"""After so long without a byte the connection for wakes is asked whether it is alive; after twice that it is lost."""
CHANNEL_WAKES_RECONNECT_S_MIN = 0.05
CHANNEL_WAKES_RECONNECT_S_MAX = 2.0
"""Between these, doubling, the pause before it is made again."""
CHANNEL_CANCEL_S = 0.1
"""How long a task has to end before it is cancelled once more."""
CHANNEL_KEY_KEPT_S = 30.0
"""How long a process takes the key for handles in the backend for granted."""
CHANNEL_KEY_LOOK_S = 1.0
"""After a handle that proved wrong, the key in the backend is looked at again, at most once in so long."""
CHANNEL_SCAN_KEYS = 1000
"""Keys that a server looks at for one SCAN ..."""
CHANNEL_SCANS_MAX = 16
"""... and scans of one page of the list of channels ..."""
CHANNEL_LISTED_DEFAULT = 256
"""... which ends when it has this many keys of channels and subscribers."""
CHANNEL_LIST_BYTES_MAX = CHANNEL_PUBLISH_BYTES_MAX + 64 * KIB
"""The body of an HTTP request that publishes several messages, ids and all; a larger one is refused."""
CHANNEL_QUERY_FIELDS_MAX = 16
"""Parameters in the query of a request; more are refused."""
CHANNEL_POLLS_DEFAULT = 4000
"""Polls and event streams over HTTP that wait at the same time; further ones are told to come back later ..."""
CHANNEL_POLLS_PER_CHANNEL_PART = 2
"""... as are those of one channel that has this part of them, so that one channel does not take all ..."""
CHANNEL_POLLS_PER_SUBSCRIBER_MAX = 8
"""... and those of one subscriber."""
CHANNEL_BODY_LARGE_BYTES = 64 * KIB
"""A larger body of a request or an answer needs room ..."""
CHANNEL_BODIES_BYTES_MAX = 64 * MIB
"""... of which there is so much; others are told to come back later. An answer is sent in pieces that are small ..."""
CHANNEL_TAKEN_S_MAX = 30.0
"""... and a client that takes none of them for so long is cut off."""
CHANNEL_RETRY_AFTER_S = 1
"""When a client that was told to come back later may do so."""
CHANNEL_PROBE_S_MAX = 2.0
"""How long /probe/readiness waits for the backend."""
CHANNEL_STREAM_SILENT_S = 10.0
"""After so long without a message, an event stream shows that it is alive."""
CHANNEL_STREAM_UNACKNOWLEDGED_MAX = 1024
"""An event stream ends after so many messages, so that the client connects again and acknowledges them ..."""
CHANNEL_STREAM_UNACKNOWLEDGED_S = 30.0
"""... or so long after the first of them."""
CHANNEL_STREAM_RETRY_MS = 500
"""How long a browser waits before it connects again."""
CHANNEL_FAULT_LOGGED_S = 10.0
"""The log tells of a backend that does not answer at most once in so long."""
CHANNEL_REQUEST_ID_LENGTH_MAX = 128
"""The id that a client gives its request; a longer one is replaced."""

# --- channels by configuration ----------------------------------------------------------------------------------

CHANNEL_RULES_MAX = 256
"""Groups of channels in one configuration; more are refused."""
CHANNEL_RULES_BYTES_MAX = 1 * MIB
"""Of the file with the configuration of channels."""
CHANNEL_PATTERN_LENGTH_MAX = 1000
"""Characters of the regular expression of a group."""
CHANNEL_PATTERN_WAYS_MAX = 4096
"""Ways in which a regular expression may try to match a name; more are refused. So many take about 25 µs."""
CHANNEL_MATCHES_KEPT_MAX = 4096
"""Channels whose rules are kept at hand; the others are matched again."""
CHANNEL_TOKEN_BYTES_MAX = 8 * KIB
"""Of a token; a longer one is refused unread."""
CHANNEL_TOKEN_KEYS_MAX = 16
"""Key files for one algorithm of a rule: each of them may be tried for a token."""
CHANNEL_TOKEN_KEY_BYTES_MAX = 64 * KIB
"""Of a key file."""
CHANNEL_TOKEN_KEYS_LOOK_S = 1.0
"""How often a key file is looked at for a change, when tokens come."""
CHANNEL_TOKEN_SECRET_BYTES_MIN = 32
"""Of a secret for HS256, as RFC 7518 wants it, and of one that signs for a webhook; shorter ones are refused."""
CHANNEL_TOKEN_RSA_BITS_MIN = 2048
CHANNEL_CLOCK_SKEW_MS_MAX = 15 * 60_000
"""How far the clock of an issuer may be off; a revocation outlives its token by this."""
CHANNEL_REVOCATION_STALE_S = 2.0
"""For how long a token that was not revoked is not looked up again: a revocation counts at all gateways after this."""
CHANNEL_REVOCATIONS_KEPT_MAX = 10_000
"""Tokens of which is remembered whether they are revoked; the others are looked up."""
CHANNEL_TOKEN_ID_LENGTH_MAX = 512
"""Characters of the id of a token (`jti`)."""

# --- webhooks of channels ---------------------------------------------------------------------------------------

WEBHOOKS_PER_GROUP_MAX = 16
WEBHOOK_TEMPLATE_LENGTH_MAX = 16 * KIB
WEBHOOK_URL_LENGTH_MAX = 8 * KIB
"""Characters of a URL whose template is filled in; a message with a longer one fails."""
WEBHOOK_TIMEOUT_MS_DEFAULT = 30_000
WEBHOOK_TIMEOUT_MS_MAX = 10 * 60_000
"""For one call, from looking up the name to the end of the response."""
WEBHOOK_RESPONSE_BYTES_MAX = 64 * KIB
"""Of a response are read; the connection is closed if there is more."""
WEBHOOK_CALLS_DEFAULT = 16
WEBHOOK_CALLS_MAX = 1024
"""Calls of one webhook that are under way at the same time, of all its channels."""
WEBHOOK_REDIRECTS_MAX = 10
WEBHOOK_RETRY_MS_DEFAULT = 1000
"""The pause after the first failure ..."""
WEBHOOK_RETRY_MS_MAX_DEFAULT = 5 * 60_000
"""... which grows up to this ..."""
WEBHOOK_RETRY_MS_MAX = 86_400_000
"""... and may be configured up to this."""
WEBHOOK_ATTEMPTS_MAX = 1_000_000
WEBHOOK_LEASE_MS = 10_000
"""How long a runner has a webhook of a channel to itself without renewing: if it dies, another waits that long."""
WEBHOOK_LEASE_MARGIN_MS = 1000
"""So long before its end a lease counts as lost: the clocks of two machines do not run alike."""
WEBHOOK_FENCE_MS = 7 * 86_400_000
"""How long the token of the last holder is kept; later ones are larger anyway, by the time of day."""
WEBHOOK_WORKERS_MAX = 2000
"""Pairs of webhook and channel that one process serves at the same time; the others wait for the next look."""
WEBHOOK_LINGER_S = 30.0
"""How long a worker with nothing to send waits for more before it gives its lease back."""
WEBHOOK_SCAN_S = 30.0
"""How often all channels are looked through for messages that nobody sends, give or take a fifth ..."""
WEBHOOK_SCAN_PAUSE_S = 0.05
"""... with a pause after each page."""
WEBHOOK_SUBSCRIBE_S = 30.0
"""How often the subscriber of a webhook is made again while its channel is used, or a quarter of the expiry."""
WEBHOOK_CHANNELS_KEPT_MAX = 50_000
"""Channels of which is remembered when that was."""
WEBHOOK_TROUBLE_S = 1.0
"""The pause of a worker after an error of the backend."""
WEBHOOK_STOP_S = 5.0
"""How long a stop waits for calls that are under way ..."""
WEBHOOK_CANCEL_S = 1.0
"""... and how long a worker has to give its lease back before it is cancelled once more."""

# --- Spark ------------------------------------------------------------------------------------------------------

SPARK_BATCH_ROWS = 32_000
SPARK_BATCH_BYTES = 16 * MIB
"""What comes in smaller batches is joined to batches of about this many rows or bytes: each costs the JVM some time."""
SPARK_DAY_ROWS_MIN = 1000
"""What a small day counts at least when days share a task: it takes a round trip, however few rows it has."""
SPARK_PACKED_EVENT_BYTES = 25
"""About what an event takes in a compressed batch (`benchmarks/job_events.py`), to estimate the rows of a day."""
SPARK_PARTITION_ROWS = 250_000
SPARK_PARTITION_FRAMES = 16
"""Of a stream, or of a journal, that one task reads (defaults)."""
SPARK_NODES_BYTES = 128 * MIB
"""Nodes that one task of a snapshot reads from node files, about."""
SPARK_STATE_BYTES = 256 * MIB
"""Of the snapshot and the journal of a shard: for more, several tasks read it, each for some of its slots."""
SPARK_CALL_ROWS = 1000
SPARK_CALL_BYTES = 1 * MIB
"""What is appended to a stream with one call. Never changed: a task that is retried must make the same calls."""
SPARK_CALLS_MAX = 1 << 20
"""Calls of one task to one stream: a producer's seq is the batch times this, and the call."""
SPARK_PAGE_ROWS = 10_000
"""Entries of one XRANGE."""
SPARK_POLL_S = 0.05
SPARK_SCAN_S = 1.0
"""How long it is believed where streams end, and which there are: Spark asks every 10 ms."""
SPARK_STREAMS_MAX = 10_000
"""That one pattern may name."""
SPARK_PARTITIONS_MAX = 100_000
"""What `minPartitions` may ask for: Spark's driver keeps each of them in memory."""
SPARK_TRIGGER_DELAY_S = 900.0
"""How long a reader waits for `minRowsPerBatch`, unless `maxTriggerDelay` says it: as long as Kafka's source."""
SPARK_LAG_S = 1.0
"""How long it is believed how far a query is behind ..."""
SPARK_LAG_STREAMS_MAX = 16
"""... and of how many streams of a pattern the first entry that waits is looked at, to tell for how long it has."""
SPARK_FEED_READ_BYTES = 256 * KIB
"""Of a feed that are taken from the socket at a time."""
SPARK_FEED_CHECKPOINT_MS = 1000
SPARK_FEED_LOST_S = 30.0
SPARK_FEED_RETRY_S = 0.2
"""A task that reads a feed connects again until nothing has come for so long, and waits so long in between."""
SPARK_PARTITION_RECORDS = 250_000
"""Of one shard's journal that one task reads for a batch (a default)."""

SPARK_ARCHIVES_MAX = 3
SPARK_ARCHIVE_BYTES_MAX = 512 * MIB
"""Class archives in a user's cache, one for each Java and Spark, and the size beyond which one is not kept."""
SPARK_ARCHIVE_AFTER_S = 60.0
"""When a session that goes on has an archive made; one that ends sooner has it made at its end."""
SPARK_ARCHIVE_MAKING_S_MAX = 1800.0
SPARK_ARCHIVE_RETRY_S = 86_400.0
"""How long the making of an archive may take, and how long after an attempt there is no other one."""

PIPELINE_WAVE_ITEMS = 256
"""Day streams, or job sets, that are found and worked on together: what a job holds does not grow with their number."""
PIPELINE_TASK_ITEMS = 32
PIPELINE_TASK_BYTES = 16 * MIB
"""Small items of a wave share a task, up to so many of them with about so much to read."""
PIPELINE_REMOVED_DAY_BYTES = 1 * MIB
"""What a day to be removed counts for that: it is not read."""
PIPELINE_WAVE_S = 10.0
"""With a limit of streams an hour, a wave has what the limit allows in so many seconds, and at least one."""
PIPELINE_FAILURES_KEPT = 1000
"""For the table at the end; more are only counted."""
PIPELINE_TASK_ATTEMPTS = 4
"""How often Spark tries a task whose process died."""
PIPELINE_REPORT_S = 1.0
PIPELINE_SILENT_S = 10.0
"""How often a job says in its hash how far it is; not heard of for so long, it may have been killed."""
PIPELINE_TEXT_CHARS_MAX = 1000
"""Of a text in that hash: an error of Spark's goes on for pages."""
PIPELINE_BATCHES_KEPT = 100
PIPELINE_RATE_S = 10.0
"""Batches whose times are kept for quantiles, and how much of the past counts for rows a second."""
PIPELINE_JOBS_SHOWN_MAX = 100
PIPELINE_FIELDS_SHOWN_MAX = 50
"""Jobs that /metrics shows, and figures of each: any client may write hashes that look like theirs."""
PIPELINE_RETRY_S_MIN = 1.0
PIPELINE_RETRY_S_MAX = 300.0
PIPELINE_STEADY_S = 60.0
"""How long `pipeline run` waits before it runs a failed job again: twice as long each time, and from the shortest again
once a run has lasted for so long."""
PIPELINE_EVERY_S_MAX = 366 * 86_400
PIPELINE_TIMES_MAX = 100
"""The longest time between two runs of a job, and the times of a day that its schedule may name."""
PIPELINE_STOP_S_MAX = 30.0
"""How long a job waits for its tasks to end when it is stopped: they are fenced off by the next job in any case."""

# --- views ------------------------------------------------------------------------------------------------------

VIEWS_MAX = 100
"""In one file."""
VIEW_SQL_CHARS_MAX = 20_000
VIEW_SQL_WORDS_MAX = 4000
VIEW_SQL_DEPTH_MAX = 25
"""Brackets, and CASEs, inside each other: the parser goes into them by recursion."""
VIEW_TARGET_CHARS_MAX = 1024
VIEW_LOOKUPS_MAX = 8
VIEW_OUTPUTS_MAX = 200
"""Columns of a view."""
VIEW_OUTPUT_CHARS_MAX = 128
VIEW_COLUMNS_MAX = 60
"""Of a source that a view may name: changes have a bit for each."""
VIEW_BATCH_RECORDS = 200_000
"""Of each shard, that a batch of views takes at most, about."""
VIEW_PACKED_ROWS = 50_000
"""Rows that a task hands to Spark at a time."""
VIEW_PORTION_ROWS = 200_000
"""Rows that a task takes at a time from what was handed to it: they are in its memory."""
VIEW_RUN_ROWS = 1_000_000
"""Changed rows of a source after which a task writes a run."""
VIEW_BUCKETS_MIN = 4
VIEW_BUCKETS_MAX = 1024
VIEW_BUCKET_ROWS = 8_000_000
"""Into how many buckets a view is divided: each is a task in every batch."""
VIEW_TABLE_REST = 3.0
"""A view's table is not written for so many times as long as writing it took."""
VIEW_TRIGGER_S = 0.2
"""How often views look for more (a default)."""
VIEW_VACUUM_S = 600.0
"""How often what a view's table was is removed."""
VIEW_THREADS = 4
"""Views that take in a batch at the same time."""
VIEW_SCAN_KEYS = 1000
VIEW_CALLS = 1000
"""Commands that are sent together."""
VIEW_CHECK_S_MAX = 30.0
"""How long a check waits for a view that is behind ..."""
VIEW_CHECK_PAUSE_S = 0.5
"""... between two looks."""
VIEW_REBUILDS_MAX = 3
"""How often views are built anew in one run because the server has lost or erased what they were to go on with."""

RUN_BATCH_ROWS = 1 << 20
RUN_BATCH_BYTES = 512 * MIB
"""Of a sorted run: how much of it is one batch, whose values of a column lie together."""
RUN_SMALL_ROWS = 1000
RUN_MERGE_RATIO = 2
RUNS_MERGED_MIN = 8
"""So many runs are merged if each is small, or at most twice as large as all that are newer."""
RUNS_MERGED_KEPT_S = 60.0
"""How long runs that were merged are kept for tasks that read them."""
RUNS_OPEN_MAX = 512
"""That a process keeps open: they are mapped into memory."""
RUN_CACHE_BYTES = 16 * GIB
"""Of runs that were fetched from an object store, on each machine."""
RUN_LOG_TEND_S = 60.0
"""How often old versions of the list of runs are removed."""

LAKE_BATCH_RECORDS = 500_000
LAKE_TRIGGER_S = 1.0
"""What a batch of the lake takes of each shard at most, about, and how often it looks for more (defaults)."""
LAKE_PASS_CHANGES = 4_000_000
LAKE_PASS_BYTES = 512 * MIB
"""What a pass over `current` takes at a time: so many changes, in Parquet files of so many bytes."""
LAKE_FOLD_TASK_BYTES = 32 * MIB
"""A task of a pass reads files of `changes` with so many bytes, or one larger file."""
LAKE_PACKED_ROWS = 65_536
LAKE_PACKED_BYTES = 8 * MIB
"""Of reduced changes that go from one task to another as one value of Spark's: so many rows, about so many bytes."""
LAKE_BUCKETS_MAX = 4096
LAKE_DIVIDED_MAX = 16
"""Buckets of `current`, and into how many a bucket is divided at a time: a file is written for each."""
LAKE_BUCKET_FILES_MAX = 16
"""Small files of a bucket; a pass that meets more puts them together."""
LAKE_COMMIT_ATTEMPTS = 10
"""How often a commit is tried again because other jobs commit to the table, too."""
LAKE_FIRST_BATCH_S = 30.0
"""How long passes wait for the first batch of a job, which has nothing to take in while nobody writes."""
LAKE_REWRITTEN_BYTES_PER_S = 1 * MIB
"""Of `current` that are rewritten while it follows: that takes the processor, and the old files stay for a while."""
LAKE_FILE_ROWS = 1_000_000
LAKE_FILE_BYTES = 128 * MIB
"""A task begins a new file after so many rows or bytes; small files are put together to as many bytes, and a bucket
that is larger is divided."""
LAKE_ROW_GROUP_ROWS = 131_072
LAKE_ROW_GROUP_BYTES = 64 * MIB
"""Of a file: what is collected, in memory, before it is written."""
LAKE_SORTED_BYTES = 1 * GIB
LAKE_SORTED_GROUP_ROWS = 32_768
"""What `tidelog pipeline optimize` sorts at a time, in memory, and the rows of a group in the file that it becomes: a
reader of one key reads one group."""
LAKE_IDLE_COMMIT_S = 60.0
"""How often a table is told how far it is while there is nothing to put in."""
LAKE_SMALL_FILES_MAX = 64
"""Files of a day, or of a table, that are smaller than they could be: more are put together."""
LAKE_UPKEEP_S = 600.0
LAKE_VACUUM_HOURS = 168
"""How often files are removed that no table has any more, and how long they stay before (a default)."""
LAKE_KEEP_HOURS_MIN = 1
"""`tidelog pipeline optimize` keeps files at least so long: a task of another job may just have written them."""
LAKE_JSON_COLUMNS_MAX = 1000
"""That JSON values may bring; members beyond them stay where they are, in the value."""

# --- the journal's format ---------------------------------------------------------------------------------------

FRAME_BYTES_CHOICES = (1 * MIB, 2 * MIB, 4 * MIB)
FRAME_BYTES_DEFAULT = 2 * MIB
FRAMES_PER_SEGMENT_MAX = 64
FRAME_TS_SPAN_US_MAX = 2**32 - 1
"""A ts is stored relative to its frame's in 4 bytes; a later one starts a new frame."""
BLOB_FRAME_FRACTION = 4
"""A payload larger than a frame divided by this goes to the blob file, so a record spans two frames at most."""
STAGED_BYTES_MIN = 4 * MIB
"""A value of this size is joined and written to the blob file by a thread, before the command with it runs."""
STAGED_HEAD_BYTES_MAX = 64 * KIB
"""Room for what stands before such a value in its record: the key, and the name of a field."""
STAGED_PIECE_BYTES_MIN = 64 * KIB
"""What arrives of it in smaller pieces is put together ..."""
STAGED_PIECE_BYTES = 1 * MIB
STAGED_SYNC_BYTES = 16 * MIB
"""... and it is written in pieces of this size, and fsynced after this many bytes."""
STAGED_TIMES_MAX = 3
"""How often it is written, if segments end meanwhile, before it is written while others wait."""
SPLIT_ROOM_BYTES_MIN = 64
"""A record is split over two frames only if at least this much of it fits into the first."""
RECORD_MEMBERS_MAX = 512
"""An operation with more members than this is split into several records ..."""
RECORD_SPLIT_BYTES = 256 * KIB
"""... and so is one whose members take more than this."""
RECORD_OFFSETS_MAX = 1_048_576
"""Offsets of entries that one record names, as runs ..."""
RECORD_PENDING_MAX = 4096
"""... and pending entries that it describes ..."""
RECORD_DELIVERED_MAX = 16_384
"""... and new entries that it delivers, with their ids."""
PAYLOAD_BYTES_MAX = 1 * GIB
"""No payload is larger: what a length in a damaged file can make a reader allocate."""
SHARDS_MAX = 256

# --- the writer -------------------------------------------------------------------------------------------------

BATCH_BYTES_FULL = 512 * KIB
"""With this much gathered, the caller is to write before it takes more (`JournalWriter.batch_bytes`)."""
TRANSACTION_BYTES_MAX = 2 * GIB
"""Payloads of one transaction: a command that would go past it is refused, and so can be one of many in an EXEC."""
BATCH_BYTES_MAX = TRANSACTION_BYTES_MAX + 64 * MIB
"""The size of a batch. Who writes when it is full has room for one more transaction: no applied one is refused."""
UNWRITTEN_LOOKED_AT_BYTES = 4 * MIB
"""Of a batch that there is no space for; of a larger one it is not known which keys it changes."""
UNSYNCED_BYTES_MAX = 256 * MIB
"""Written and not yet fsynced (`always`, `everysec`): past it the caller is told to wait (`has_backlog`)."""
SYNC_EVERY_US = 1 * SECOND_US
"""How often `everysec` fsyncs."""
RING_BYTES_MAX = 8 * MIB

# --- the reader -------------------------------------------------------------------------------------------------

SIDECAR_KEY_BYTES_MAX = 128
"""Smallest and largest key of a frame are kept up to this length."""
SIDECAR_BLOOM_BITS_PER_KEY = 10
SIDECAR_BLOOM_HASHES = 7
SIDECAR_BLOOM_BYTES_MAX = 512 * KIB

# --- snapshots and retention ------------------------------------------------------------------------------------

SNAPSHOT_AFTER_BYTES_MIN = 256 * MIB
"""A snapshot is made by itself when the journal since the last one exceeds this, and that one's size (a default)."""
SNAPSHOT_RETRY_S_MIN = 30
"""After one that failed, the next is not made by itself for this long; each failure doubles it ..."""
SNAPSHOT_RETRY_S_MAX = 3600
"""... up to this."""
SIDECAR_IDLE_PARTS = 100
"""While there are clients, making sidecars takes at most one part in so many of the time."""
SNAPSHOTS_KEPT = 2
CUT_TAILS_KEPT = 4
"""Tails that starts cut off; the oldest goes when there is another. At least two: one is being made."""
COPY_BYTES_AT_ONCE = 4 * MIB
"""What a backup reads and writes at a time."""
RESTORE_KEYS_AT_ONCE = 10_000
"""Keys that a restore writes between two moves of its progress bar."""
SNAPSHOT_BATCH_BYTES = 64 * KIB
"""What a snapshot gathers before it is written: others wait for that write."""
RETAIN_BYTES = 4 * GIB
"""Journal that is kept although snapshots cover it (a default), and ..."""
RETAIN_AGE_US = 24 * HOUR_US
"""... for how long (a default)."""
RETENTION_LOOK_S = 60
"""How often the server looks for segments that have become too old."""
DISK_LOW_SEGMENTS = 2
"""With less room than so many segments take, the disk is nearly full: what only the two limits above keep is erased."""
DISK_LOW_LOOK_S = 1.0
"""How often the server looks for segments to erase while the disk is nearly full."""
HOLDER_LAPSE_US = 24 * HOUR_US
"""A holder that has not moved for this long is let go."""
HOLDER_BYTES_MAX = 64 * GIB
"""Journal kept for the sake of holders alone; past it the furthest behind is let go."""
HOLDERS_MAX = 10_000
HOLDER_NAME_BYTES_MAX = 256
EPOCHS_KEPT_MAX = 1024
"""Newest epochs that snapshots carry; a reader that resumes from an older one starts over."""

# --- object storage ---------------------------------------------------------------------------------------------

OBJECTS_LISTED_MAX = 1000
"""Objects of one page of a listing, as in S3."""
OBJECT_NAME_BYTES_MAX = 512
"""In UTF-8; S3 takes 1024 with the folder that the store lies in ..."""
OBJECT_NAME_PART_BYTES_MAX = 255
"""... and a file system so many between two slashes."""
OBJECT_CONNECT_S_MAX = 5
"""To connect to an object store."""
OBJECT_SILENT_S_MAX = 10
"""Between two pieces of an answer, when something is read, listed or deleted ..."""
OBJECT_GET_S_MAX = 300
"""... and for all of it."""
OBJECT_RETRIES_MAX = 3
"""Such a call is repeated so often. Puts never are ..."""
OBJECT_RETRY_S_MAX = 20
"""... and not any more after this time."""
OBJECT_SMALL_BYTES = 1 * MIB
"""A put of no more than this ..."""
OBJECT_SMALL_PUT_S_MAX = 15
"""... may take so long ..."""
OBJECT_PUT_S_MAX = 300
"""... and a larger one so long."""
OBJECT_ERROR_CHARACTERS_MAX = 300
"""Of what a store says about an error."""
OBJECT_UNFINISHED_S_MAX = 24 * 3600
"""What a put into a folder left unfinished is removed when a store is opened after this time."""
SEALED_BLOCK_BYTES = 64 * KIB
"""Of encrypted objects: what is decrypted at once (a constant of the format)."""
SEALED_HEADERS_KEPT = 1000
"""Of objects of which parts were read: the next part then takes one request instead of two."""
# --- shipping -------------------------------------------------------------------------------------------------------

SHIP_EVERY_S = 1.0
"""Between two rounds of shipping, if something changed ..."""
SHIP_BEAT_US = 10_000_000
"""... and between two manifests if nothing did."""
SHIP_RETRY_S_MIN = 0.5
"""After a round that failed, the next comes this much later; each failure doubles it ..."""
SHIP_RETRY_S_MAX = 30.0
"""... up to this ..."""
SHIP_RETRY_DOUBLINGS = 8
"""... which takes at most so many."""
SHIP_KEEP_US = 30 * 24 * HOUR_US
"""How far back restores can go (a default)."""
RESTORE_WAIT_US = 60_000_000
"""No server may have shipped for so long before another goes on with the same database (a default)."""
RESTORE_TOLD_US = 60 * SECOND_US
"""While a restore waits for another server, it says so this often ..."""
RESTORE_PROGRESS_US = 10 * SECOND_US
"""... and while files are fetched, how far it is."""
SHIP_SAVE_S = 2.0
"""How often `tidelog ship` puts a manifest while it uploads: killed, it begins again where the last one was put."""
SHIP_BEHIND_US = 30_000_000
"""`tidelog ship status` complains about a copy that lacks changes as old as this."""
SHIP_NOTICE_US = 24 * HOUR_US
"""From when an object is announced to go until it goes: no restore may take longer."""
SHIP_DOUBT_US = 24 * HOUR_US
"""A wall clock that differs from the time that has passed is believed after so long: what is old goes by it."""
SHIP_SWEEP_US = HOUR_US
"""How often the shipper looks for objects that nothing refers to."""
SHIP_UPKEEP_RETRY_US = 300 * SECOND_US
"""If objects that are needed no more cannot be deleted, the next attempt comes so much later."""
SHIP_SURE_US = HOUR_US
"""A shipper that has not put a manifest for so long looks whether another has taken over, before it does anything."""
SHIP_AGES_MAX = 60
"""Manifests whose age every manifest tells: one of each sweep of a day, and more than that."""
SHIP_SNAPSHOTS_YOUNG_US = HOUR_US
"""Between two snapshots that stay in a copy, of the last day ..."""
SHIP_SNAPSHOTS_OLD_US = 24 * HOUR_US
"""... and of the time before."""
SHIP_TAKE_OVER_ATTEMPTS = 8
"""To put a manifest, while others put theirs."""
COPY_POLL_S = 1.0
"""How often a follower of a copy asks for the next manifest; after a failure later, doubled each time ..."""
COPY_POLL_FAILURES_MAX = 3
"""... and after so many its link is down."""
COPY_STALE_US = 60_000_000
"""If no manifest has come for so long, nobody ships any more."""
COPY_ANSWER_S = 300.0
"""For a slow store to show the ends of all shards, in request after request, each with a limit of its own: cutting the
link sooner would only ask for all of it again."""
COPY_READ_BYTES = 512 * KIB
"""What such a follower is handed at once."""
SHIPPED_OBJECT_BYTES_MAX = 32 * MIB
"""Of the bytes of a file in one object: larger files are several. On a slow line, what goes out in ..."""
SHIPPED_OBJECT_US = 2_000_000
"""... this time, because manifests wait for them, and ..."""
SHIPPED_OBJECT_BYTES_MIN = 256 * KIB
"""... at least this large."""
SHIP_BANDWIDTH_MIN = 16 * KIB
"""A server may not be told to upload less a second: a manifest waits for the object before it."""
FETCHED_OBJECTS_AT_ONCE = 8
"""By a restore."""
FETCH_ATTEMPTS = 9
"""To fetch one object by a restore: for about a minute and a half."""
SHIPPED_MERGED_COUNT = 32
"""So many small objects behind each other are made one."""
SHIPPED_EPOCHS_MAX = 16
"""Newest epochs that a manifest names."""
MANIFEST_CHANGES_MIN = 2000
"""A base is made anew when the manifests since have told of so many changes of files, and of as many as there are
files."""
SHIPPED_BLOCK_BYTES = 2 * MIB
"""What is fetched of an object for a read of fewer bytes ..."""
SHIPPED_BLOCKS_KEPT = 48
"""... of which so many are kept, and ..."""
SHIPPED_AHEAD_BLOCKS = 16
"""... so many are fetched ahead of a reader that scans."""
SPARK_AHEAD_BLOCKS = 4
"""The same in a task of Spark: what it has fetched beyond its own end was in vain."""
SPARK_FETCHED_BYTES = 16 * MIB
"""Nodes of a copy that a task has fetched side by side."""
SPARK_FETCHES_AT_ONCE = 8
"""Of one Python process of Spark, from object stores."""
SHIPPED_HOLE_BYTES = 128 * KIB
"""Bytes that nobody wants are fetched with those around them, if they are fewer than this: a request costs more."""
GOING_NAMES_MAX = 10_000
"""Objects that are announced to go together."""
# --- history in the object store ------------------------------------------------------------------------------------

HISTORY_CACHE_BYTES = GIB
"""Of the disk, for blocks of node files that lie only in the object store (a default)."""
HISTORY_CACHE_BYTES_MIN = 4 * SHIPPED_BLOCK_BYTES
HISTORY_CACHE_OPEN_BLOCKS = 8
"""Blocks of the cache that are kept in memory: neighbours of a node are often read next."""
HISTORY_CACHE_MEMORY_BYTES = 64 * MIB
"""The cache of a process that does not own the data directory, which is in memory."""
HISTORY_FREE_BYTES_MIN = 256 * MIB
"""With less free than this on the disk, nothing is kept in the cache, and nothing is fetched back."""
HISTORY_FETCHES_AT_ONCE = 4
"""Threads that read nodes from the object store."""
HISTORY_FETCHED_TOGETHER_BYTES_MAX = 256 * MIB
"""What commands may need at a time that wait for it: others wait for their turn, those that read from disk do not."""
HISTORY_DOUBTED_BLOCKS_MAX = 10_000
"""Blocks that were fetched again because they were damaged: so many are remembered, and not fetched a third time."""
HISTORY_AHEAD_BLOCKS = 4
"""When a thread that may not wait asks for a block: so many are fetched for it, from there on."""
HISTORY_DOWN_US = 2 * SECOND_US
"""For so long after a read failed, all others fail at once: they would wait as long, one after the other."""
HISTORY_RETRY_US = 30 * SECOND_US
"""A file that could not be dropped or fetched back is tried again after so long, and then after twice as long ..."""
HISTORY_RETRY_US_MAX = HOUR_US
"""... up to this ..."""
HISTORY_DAMAGED_RETRY_US = 24 * HOUR_US
"""... but one that is damaged in the copy only after this: each attempt costs a download."""
HISTORY_PAUSE_US = SECOND_US
"""After a failure, and while there is nothing to do, the next file is looked for after so long."""
HISTORY_LOOK_US = 10 * SECOND_US
"""How often it is looked for what may be dropped."""
HISTORY_FOLLOWS_US = 300 * SECOND_US
"""A leader that became a follower fetches back what it has dropped, once it has followed for so long."""
HISTORY_BANDWIDTH = 32 * MIB
"""What is fetched back a second in the background (a default)."""

assert STAGED_BYTES_MIN > RECORD_SPLIT_BYTES  # the hot path takes no larger values, and stages none
assert UNAUTHENTICATED_AT_ONCE_BYTES < AT_ONCE_BYTES <= DECODED_COMMANDS_MAX
assert UNAUTHENTICATED_PIECE_BYTES < RECEIVED_PIECE_BYTES <= UNREAD_BYTES_MAX
assert SCRIPT_BYTES_MAX * 4 <= SCRIPT_MEMORY_BYTES_MIN  # of which a quarter is kept free for the server's replies
assert SHIP_AGES_MAX * SHIP_SWEEP_US > SHIP_NOTICE_US + 2 * SHIP_SWEEP_US
assert SHIP_BEAT_US < SHIP_SURE_US < SHIP_NOTICE_US  # no manifest that it has seen is deleted by then
assert COPY_STALE_US > 2 * SHIP_BEAT_US
assert min(COPY_STALE_US, RESTORE_WAIT_US) > SHIPPED_OBJECT_BYTES_MIN / SHIP_BANDWIDTH_MIN * 1e6 + SHIP_BEAT_US
assert SHIP_RETRY_S_MIN * 2**SHIP_RETRY_DOUBLINGS >= SHIP_RETRY_S_MAX
assert 2 * SHIPPED_AHEAD_BLOCKS < SHIPPED_BLOCKS_KEPT
assert FETCHED_BYTES_MAX <= HISTORY_FETCHED_TOGETHER_BYTES_MAX
assert HISTORY_AHEAD_BLOCKS < HISTORY_CACHE_OPEN_BLOCKS
assert HISTORY_CACHE_BYTES_MIN <= HISTORY_CACHE_MEMORY_BYTES
assert SHIP_BEHIND_US > 2 * SHIP_BEAT_US
assert FRAME_BYTES_DEFAULT in FRAME_BYTES_CHOICES
assert min(FRAME_BYTES_CHOICES) // BLOB_FRAME_FRACTION >= RECORD_SPLIT_BYTES
assert BATCH_BYTES_FULL + TRANSACTION_BYTES_MAX < BATCH_BYTES_MAX
assert BATCH_BYTES_FULL < UNSYNCED_BYTES_MAX < TRANSACTION_BYTES_MAX
assert BULK_BYTES_MAX < COMMAND_BYTES_MAX < TRANSACTION_BYTES_MAX
assert CLOCK_BOUND_RENEW_US < CLOCK_BOUND_AHEAD_WALL_US
assert BULK_BYTES_MAX < PAYLOAD_BYTES_MAX < TRANSACTION_BYTES_MAX
assert LAKE_FILE_BYTES + LAKE_ROW_GROUP_BYTES < LAKE_PASS_BYTES
assert LAKE_FOLD_TASK_BYTES < LAKE_PASS_BYTES
assert LAKE_DIVIDED_MAX <= LAKE_BUCKETS_MAX
assert HTTP_FEEDS_DEFAULT < FEEDS_MAX
assert 2 * REPLICATION_PARTS_BYTES + 2 * REPLICATION_LONG_BYTES < REPLICATION_PIECE_BYTES_MAX
assert REPLICATION_LONG_BYTES < REPLICATION_STAGED_BYTES_MIN  # what a thread writes has come in pieces
assert REPLICATION_PAYLOAD_BYTES + REPLICATION_TEXT_BYTES_MAX < REPLICATION_PIECE_BYTES_MAX
assert REPLICATION_EPOCHS_BYTES_MAX + REPLICATION_UNFINISHED_MAX * 64 < REPLICATION_PIECE_BYTES_MAX
assert REPLICATION_CONNECT_S + REPLICATION_BACKOFF_S_MAX <= REPLICATION_RETURN_S
assert LINK_ROOM_BYTES < LINK_UNSENT_BYTES_MAX
assert RECORD_DELIVERED_MAX <= RECORD_OFFSETS_MAX
assert GIVEN_UP_OPENED_BYTES_MAX < FETCHED_BYTES_MAX <= FETCHED_TOGETHER_BYTES_MAX
assert DAYS_BATCH_BYTES_MAX < DAYS_EVENT_BYTES_MAX < DAYS_BATCH_OPENED_BYTES_MAX < BULK_BYTES_MAX
assert DAYS_LATE_AT_ONCE <= DAYS_LATE_LOOKED_THROUGH
assert DAYS_INDEX_S <= DAYS_INDEX_SAME_DAY_S
assert CHANNEL_MESSAGE_BYTES_MAX <= CHANNEL_PUBLISH_BYTES_MAX <= SCRIPT_MEMORY_BYTES_DEFAULT // 8
assert CHANNEL_FETCH_BYTES + CHANNEL_FETCH_AT_ONCE * CHANNEL_MESSAGE_BYTES_MAX < SCRIPT_MEMORY_BYTES_DEFAULT // 2
assert CHANNEL_FETCH_BYTES + CHANNEL_MESSAGE_BYTES_MAX + CHANNEL_LIST_BYTES_MAX < CHANNEL_BODIES_BYTES_MAX // 8
assert CHANNEL_FETCH_MESSAGES_MAX <= CHANNEL_LOOKED_AT_MAX
assert CHANNEL_STREAM_SILENT_S < CHANNEL_STREAM_UNACKNOWLEDGED_S < CHANNEL_POLL_S_MAX
assert CHANNEL_CONFIRM_MS_DEFAULT < 1000 * CHANNEL_REPLY_S_MAX
assert CHANNEL_CLOCK_SKEW_MS_MAX > 1000 * CHANNEL_REVOCATION_STALE_S
assert WEBHOOK_LEASE_MARGIN_MS * 3 < WEBHOOK_LEASE_MS < WEBHOOK_FENCE_MS
assert PIPELINE_REPORT_S * 1000 * 3 < LEASE_MS_DEFAULT
assert PIPELINE_REPORT_S * 3 < PIPELINE_SILENT_S
assert SPARK_CALL_ROWS * 2 < ARGUMENTS_MAX
assert SPARK_BATCH_BYTES < BULK_BYTES_MAX
assert OBJECT_NAME_PART_BYTES_MAX < OBJECT_NAME_BYTES_MAX <= 1024
assert OBJECT_SILENT_S_MAX + OBJECT_RETRY_S_MAX < OBJECT_GET_S_MAX
