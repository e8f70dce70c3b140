"""`tidelog view`: commands for the views that `tidelog pipeline view` keeps.

ls      the views of a server
show    the rows of a view
check   views compared with their recomputation
drop    remove a view
"""
