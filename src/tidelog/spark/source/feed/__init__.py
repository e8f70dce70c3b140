"""The kinds `feed` and `feedparts`: what changed, read as a batch or without end.

kind           the kind `feed` and its batch reader
parts          the kind `feedparts`: for jobs that read a feed in their own tasks
spans          which keys a feed watches
position       where a server stands
reading        how a task reads its part of a feed
origin         where a feed comes from, for those who read it: a server ...
shipped        ... or a copy in an object store
copied_streams  streams that were copied there, as they were then
micro_batches  `readStream`: positions, limits, the first batch
cuts           where history is cut, for several tasks
columns        events as columns
"""
