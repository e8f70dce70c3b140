"""`tidelog journal`: commands that read the files of a data directory. No server is needed.

ls       what a journal consists of: shards, segments, frames
show     the records in it
verify   whether every byte is what was written
repair   cut what cannot be read, so that a server starts again
folder   which directory is meant, which operations are known, how damage is printed
"""
