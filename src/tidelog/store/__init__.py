"""State and change: the keyspace, transactions over it, and their way into the journal and back.

`slots` and `keyspace` hold the values, `transaction` is what a command reads and writes through, `store` puts them
together with the journal, `expiry` finds what is due, `capture` keeps a moment still for a snapshot.
"""
