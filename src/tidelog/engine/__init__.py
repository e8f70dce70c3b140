"""Running commands, without sockets: what the server does with a command once it is decoded.

    table           the row of a command: its name, handler, keys, group and flags
    session         the state of one client, and what it does to the client's next command
    sessions        all clients
    dispatch        finds the row of a command, lets its handler decide, applies the decision
    disclosure      what the reply to a command may tell of keys
    engine          runs the commands of clients, one transaction each
    surroundings    what the engine asks of the process, snapshots and replication around it
    hot_commands    how commands of the hot path are called
    gate            why commands are refused, and when they are held back
    admission       whether a command may run now, by the gate and the state of its client
    would_block     what a handler raises when it has nothing to answer yet
    blocking        clients that wait for a key
    follower_waits  clients that wait for followers or the disk: WAIT and WAITAOF
    deadline        a timer for any time
    staging         commands that wait for their large values to be written
    fetching        commands that wait for cold nodes of streams to be read
    queued          EXEC: the commands of a MULTI as one transaction
    long_commands   commands that look at all keys, step by step
    monitors        MONITOR: clients that are shown every command
    subscriptions   pub/sub: who listens to which channel
    publishing      messages for listeners here, and for those of followers
    feeding         change feeds and the loop: when they read, and how events reach a client
    slow_log        the newest commands that took long
    parameters      what CONFIG shows and changes
    password        the password of the server, and what wrong ones cost
    metrics         what the server counts
    tallies         how often each command was run, and how long that took

Handlers (`commands/`) are written against these classes. `server/` adds sockets, fsync and the process. Timers come in
through `ports.Loop`, so all of it runs in a test or a simulation without an event loop.
"""
