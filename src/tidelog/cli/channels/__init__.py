"""`tidelog channels`: channels over HTTP on a backend of their own.

serve     run the gateway

`tidelog channel`, without an s, publishes and subscribes from the shell.
"""
