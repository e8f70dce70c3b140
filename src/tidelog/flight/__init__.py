"""The Arrow Flight edge: ranges of streams out, entries in, as record batches.

request    what a client asks for: which stream, from where to where
nodes      what a reader gets: entries, or nodes that it opens itself
view       an immutable piece of a stream that the loop hands over to a thread
service    the store's side: runs on the loop
server     the Flight server: runs on threads of gRPC's, and never touches the store
access     who may use it: the same password as for Redis clients
"""
