"""Change feeds: the history of the journal as events, from any point in it that is still there.

Nothing here waits or listens: `server` moves feeds on when something has become visible, and sends what they make.
"""
