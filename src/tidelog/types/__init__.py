"""The types of values, and the operations that change them.

A value is the plainest Python object that does the work: `bytes` for a string, a dict for a hash. Each type is one
module with its class, its operations and its row of the table of types; an operation is a deterministic effect with
results and no conditions. Commands, recovery and followers apply the same operations. Streams have a package of their
own.

value_type  what a row of the table of types says; `store/type_table.py` lists the rows
effect      what an operation is: its record, its effect on a keyspace, what feeds tell about it
change      a change of a key, as feeds tell it
key         operations on keys of any type: delete, flush, expire
library     operations on libraries of functions, which belong to no key
hold        operations on the holds of named feeds, which belong to no key
string      strings: `bytes`
hash        hashes: a dict
set         sets: a dict without values
list        lists: two Python lists ...
two_ended_list  ... end to end
zset        sorted sets: packed in order while they are small, a dict and a sorted list beyond
"""
