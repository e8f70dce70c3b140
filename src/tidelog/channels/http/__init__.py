"""Channels over HTTP: the paths, bodies and error codes of the original, and some more.

app             the application: finds the call, asks who may, answers
routes          all calls, as a table
call            a request
answer          what is answered, and which answer an error becomes
calls           the calls on channels
message_list    reads a body with several messages
body_room       how many bytes of large bodies are under way
polls           the places of polls that wait
event_stream    messages as server-sent events
admin           calls for operators
openapi         describes the calls
figures         numbers for /metrics
request_log     one line of JSON for each request
durations       `30s`, as clients write it
"""

from __future__ import annotations

from tidelog.channels.http.app import ChannelsApp, HttpSettings
from tidelog.channels.http.call import CallGate

__all__ = ["CallGate", "ChannelsApp", "HttpSettings"]
