"""`tidelog channel`: publish to channels and subscribe to them, on Tidelog or any Redis.

pub              publish messages
sub              print the messages of a subscriber
rm               remove a subscriber
ls               list channels and subscribers
json_documents   messages from JSON text, one a line

`tidelog channels serve`, with an s, is the server of channels over HTTP.
"""
