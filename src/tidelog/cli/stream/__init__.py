"""`tidelog stream`: commands that ask a running server about its streams.

ls      the streams
tail    the entries of one stream
info    one stream and its groups
facts   TINFO's reply as a dict
"""
