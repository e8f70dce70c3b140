"""The real machine: clock and disk as `ports.py` asks for them.

This is the only package that reads the time or touches a file by itself. It decides nothing: it does what the port
says and lets the operating system's errors through, so that there is little here which a simulation could miss.
"""
