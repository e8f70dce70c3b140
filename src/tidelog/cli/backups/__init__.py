"""`tidelog backups`: copies in object stores, from the side of a reader.

ls  databases, lineages, the moments that can be restored, snapshots, sizes
"""
