"""Commands: one row each, a file a family.

`table` says what a row is, `arguments` reads options and numbers as Redis does. A handler decides: it reads through a
transaction and returns a reply, or a reply and operations; it changes nothing itself.
"""
