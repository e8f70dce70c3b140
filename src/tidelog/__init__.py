"""Tidelog: an event store that speaks the Redis protocol and keeps every change in one journal."""

__version__ = "0.1.0"
