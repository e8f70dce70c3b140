"""History that is read without a server: copies in object stores, data directories and backups.

address       where history lies, and how it is opened on the driver and on executors
moment        one moment of it: what has to be read to show that moment
wanted_keys   which keys are wanted
snapshot_slots  which frames of a snapshot have the keys of some slots
past_shard    one shard as it was at a moment, replayed for the keys that are wanted
runs          the runs of a copy's lineages that together are its history
lineages      the journal of one lineage, as feeds read it
"""
