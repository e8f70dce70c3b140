"""`tidelog stream`: commands that ask a running server about its streams.

ls          the streams
tail        the entries of one stream
following   a stream that is followed, also from one server to another
info        one stream and its groups
facts       TINFO's reply as a dict
"""
