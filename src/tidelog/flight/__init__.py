"""The Arrow Flight edge: clients read ranges of streams and append entries, as record batches.

request       what a client asks for: which stream, from where to where
nodes         what a client gets: entries, or nodes that it opens itself
stream_slice  an immutable slice of a stream that the loop hands to a thread
service       the side of the store: runs on the loop
server        the Flight server: runs on gRPC's threads, and never touches the store
access        authentication: the same password as for Redis clients
"""
