"""The Redis protocol, RESP2 and RESP3, between bytes and values: no I/O and no commands.

`decoder` turns what a client sent into commands, `exact` is its slow and strict half, `inline` splits the line form,
and `encoder` turns replies into bytes. `json_form` is how decoded values look in JSON.
"""
