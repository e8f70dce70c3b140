"""The types of values, and the operations that change them.

A string is `bytes`; a collection is an object of one slot, which holds one string while the collection is small.
Each type is a module with its operations and its row of the table of types, and one with its class; an operation is a
deterministic effect with results and no conditions. Commands, recovery and followers apply the same operations. Streams
have a package of their own.

value_type  what a row of the table of types says; `store/type_table.py` lists the rows
effect      what an operation is: its record, its effect on a keyspace, what feeds tell about it
change      a change of a key, as feeds tell it
key         operations on keys of any type: delete, flush, expire
library     operations on libraries of functions, which belong to no key
hold        operations on the holds of named feeds, which belong to no key
string      strings: `bytes`
hash        hashes ...
hash_value      ... packed, or a dict
shapes          the names of fields that many hashes have in common
set         sets ...
set_value       ... packed, or a dict without values
list        lists ...
list_value      ... packed, or ...
two_ended_list  ... two Python lists end to end
zset        sorted sets ...
zset_value      ... packed, or ...
sorted_members  ... two columns in order, beyond that a dict and a sorted list
packed_items    items in one string, which small collections are packed as
encoding_bounds     up to where OBJECT ENCODING says that a value is small
"""
