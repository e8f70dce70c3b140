"""Planted bugs of lists: each must be caught by the simulation of the store (`store_world`) or of feeds
(`feed_world`)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

LIST_MUTANTS: Final = (
    Mutant(
        "hot-pop-not-told",
        "server/hot_lists.py",
        "                database.observe(key)  # clients",
        "                pass  # clients",
        "what the hot path pops while a snapshot is taken is missing from it",
        "store",
        focus="lists",
    ),
    Mutant(
        "hot-pops-journaled-once",
        "server/hot_lists.py",
        "if len(elements) == 1 else encode_items([key, *elements])\n",
        'if elements else b""\n',
        "of a run of pushes or pops on the hot path only the first is journaled",
        "store",
    ),
    Mutant(
        "hot-pushes-turned-round",
        "server/hot_lists.py",
        "        value.push(elements, is_left)\n",
        "        value.push(elements[::-1], is_left)\n",
        "a run of pushes on the hot path comes back in another order",
        "store",
    ),
    Mutant(
        "snapshot-shares-a-list",
        "types/two_ended_list.py",
        "        other.front, other.back = self.front[:], self.back[:]\n",
        "        other.front, other.back = self.front, self.back\n",
        "a list that changes while a snapshot is taken is in it as it is later",
        "store",
    ),
    Mutant(
        "snapshot-turns-a-list-round",
        "types/list.py",
        "    return in_pieces(key, list(value), _pushed_right)\n",
        "    return in_pieces(key, list(value), lambda key, run: pushed(key, run, is_left=True))\n",
        "a long list comes back from a snapshot the other way round",
        "store",
        focus="lists",
    ),
    Mutant(
        "inserted-elsewhere-after-a-start",
        "types/list.py",
        "    return LInsert(key, _index(index), element)\n",
        "    return LInsert(key, max(_index(index) - 1, 0), element)\n",
        "an element that was inserted comes back in another place",
        "store",
    ),
    Mutant(
        "trimmed-shorter-after-a-start",
        "types/list.py",
        "    op = LTrim(key, _index(start), _index(stop))\n",
        "    op = LTrim(key, _index(start), max(_index(start), _index(stop) - 1))\n",
        "a list that was trimmed comes back without its last element",
        "store",
    ),
    Mutant(
        "removed-from-the-start-only",
        "types/list.py",
        '    return LRem(key, list(struct.unpack(f"<{len(packed) // _POSITION_BYTES}I", packed)), element)\n',
        '    return LRem(key, list(struct.unpack_from("<I", packed)), element)\n',
        "of several elements that were removed all but the first come back",
        "store",
    ),
    Mutant(
        "empty-list-stays",
        "types/list.py",
        "    if not len(value):\n        keyspace.remove(key)\n",
        "    if not len(value):\n        pass\n",
        "a list without elements is still there",
        "store",
    ),
    Mutant(
        "other-side-not-turned-round",
        "types/two_ended_list.py",
        "        self.front = self.back[:count]\n        self.front.reverse()\n",
        "        self.front = self.back[:count]\n",
        "elements that are popped from the side they were not pushed to come in the wrong order",
        "store",
    ),
    Mutant(
        "removed-from-both-halves",
        "types/two_ended_list.py",
        "[in_front - 1 - at for at in reversed(positions) if at < in_front]",
        "[in_front - 1 - at for at in reversed(positions) if at < in_front][:1]",
        "of several elements of the front half only one is removed",
        "store",
    ),
    Mutant(
        "feed-of-pops-at-the-other-end",
        "types/list.py",
        '        keyed_effect(RPOP, "rpop", RPop, _apply_rpop, _changes_of_elements(b"rpop")),\n',
        '        keyed_effect(RPOP, "rpop", RPop, _apply_rpop, _changes_of_elements(b"lpop")),\n',
        "a feed tells of pops at the other end",
        "feeds",
    ),
    Mutant(
        "feed-of-one-removed-position",
        "types/list.py",
        "    positions = _array([number(at) for at in op.positions])\n",
        "    positions = _array([number(at) for at in op.positions[:1]])\n",
        "a feed tells of one of several elements that were removed",
        "feeds",
    ),
    Mutant(
        "feed-of-an-exclusive-trim",
        "types/list.py",
        "_array([number(op.start), number(op.stop)])",
        "_array([number(op.start), number(op.stop - 1)])",
        "a feed tells of a trim that is shorter than it was",
        "feeds",
    ),
    Mutant(
        "initial-list-begins-anew",
        "types/list.py",
        '        field = b"rpush"\n',
        "        field = None\n",
        "of a long list a feed with INITIAL gives only the end",
        "feeds",
    ),
)
