"""Webhooks of channels: each is a durable subscriber whose messages are sent to a URL, in order, at least once.

async with WebhookRunner(channels, backend, lambda: file.rules) as webhooks:
    await webhooks.prepare("chat-room-7")
    await channels.publish("chat-room-7", message)

webhook_rule    a webhook by configuration
runner          finds channels that have webhooks, and keeps workers on them
worker          sends the messages of one channel to one webhook
lease           lets one gateway at a time do so
attempts        counts how often a message was tried, also over restarts
sender          makes the calls
addresses       which addresses may be called
signature       proves to receivers where a call comes from
dead_letter     what becomes of messages that cannot be sent
counters        what was sent, and what was not
"""
