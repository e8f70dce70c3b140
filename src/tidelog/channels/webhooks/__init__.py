"""Webhooks of channels: each is a durable subscriber whose messages are sent to a URL, in order, at least once.

webhook_rule    a webhook by configuration
"""
