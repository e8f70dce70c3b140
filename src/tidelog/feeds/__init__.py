"""Change feeds: the history of the journal as events, from any point that the journal still has.

Nothing here waits or listens: `engine/feeding.py` moves feeds on when something has become visible, and sends their
events.

feeds       all feeds of a store: opens them, lets them catch up, gives them checkpoints
open_feed   a feed that is open, and the sink that its events go to
beginning   where a feed begins
feed        one feed: what it asked for, how far it is, and its events that are not sent yet
holds       how far the readers of named feeds have come
repeats     holds back readers that begin at the same place again and again
live        hands what becomes visible to the feeds that have caught up
fanout      hands out what was read to the feeds that watch its keys
scan        INITIAL: sends the values of now
router      the history of several shards as one
shard_feed  the history of one shard after a ts, for some spans of keys
span        spans of keys, and an index of the feeds that watch them
whale       records that are too large for a frame
event       how events are encoded
"""
