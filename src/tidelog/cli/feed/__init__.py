"""`tidelog feed`: what changes on a server, as it happens.

feed    the command, on the Python client
lines   events as lines: JSON, or columns on a terminal
order   events in the order of their ts
"""
