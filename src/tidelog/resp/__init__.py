"""The Redis protocol, RESP2 and RESP3, between bytes and values. It knows neither sockets nor commands.

decoder    what a client sent, as commands: takes the plain way or the exact one
plain      requests in their plain form, whole in one buffer: nearly all that clients send
exact      every other request: each length is checked before anything is kept for it
inline     a line of words, for people with a terminal and for health checks
encoder    replies as bytes
json_form  decoded values as JSON has them
"""
