"""`tidelog ship`: copies in object stores, from the side of the one that is copied.

ship    `tidelog ship`: copy a directory that no server has open
status  `tidelog ship status`: how a copy stands
"""
