"""Dead letters: messages that a webhook could not send, as messages of another channel.

    {"webhook": "chat-archive", "channelID": "chat-room-7", "messageID": "msg123",
     "attempts": 20, "reason": "status 500", "content": {"text": "hello!"}}

The id of a dead letter is made of webhook, channel and message, so that it is published once even if the cursor could
not be moved after it. The channel gets a subscriber (`dead-letters`) before its first letter: a subscriber that came
later would not see it. Letters expire as other messages do.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from tidelog.channels.message import ChannelMessage
from tidelog.channels.webhooks.webhook_rule import WebhookUse

DEAD_LETTER_SUBSCRIBER: Final = "dead-letters"


def dead_letter(use: WebhookUse, message: ChannelMessage, *, attempts: int, reason: str) -> ChannelMessage:
    """The letter. It is a little larger than its message, and so it may be larger than a publisher's may be."""
    about = {
        "webhook": use.webhook.name,
        "channelID": use.channel,
        "messageID": message.id,
        "attempts": attempts,
        "reason": reason,
    }
    named = "\0".join((use.webhook.name, use.channel, message.id)).encode()
    start = json.dumps(about, separators=(",", ":")).removesuffix("}").encode()
    return ChannelMessage(hashlib.sha256(named).hexdigest()[:40], b'%b,"content":%b}' % (start, message.content))
