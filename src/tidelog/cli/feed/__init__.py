"""`tidelog feed`: what changes on a server, as it happens.

feed       the command, on the Python client
delivery   how events reach their consumer, and when they count as handled
lines      events as lines: JSON, or columns on a terminal
order      events in the order of their ts
"""
