"""Sorted sets: setting scores, looking members up, drawing and scanning them.

Whatever computes a score journals the score (`ZAdd`), whatever picks members journals the members (`ZRem`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.commands.arguments import syntax_error
from tidelog.commands.drawing import check_pairs_count, drawn_count
from tidelog.commands.scanning import scan_cursor, scan_members, scan_options
from tidelog.commands.sorted_set_bounds import score as read_score
from tidelog.engine.table import ONE_KEY, SORTED_SET, Arguments, Command, Decision, read, write
from tidelog.errors import CommandError
from tidelog.journal.operation import Del
from tidelog.resp.encoder import NULL_ARRAY, Pairs, Reply, format_double
from tidelog.store.transaction import Transaction
from tidelog.types.sorted_members import ScoredMember
from tidelog.types.zset import zadd, zadd_one, zrem
from tidelog.types.zset_value import ZSet

_LISTPACK_INTEGER_MAX: Final = 2.0**62
"""Redis keeps a whole score up to this as an integer in a listpack."""


def find_zset(transaction: Transaction, key: bytes) -> ZSet | None:
    zset: ZSet | None = transaction.find_typed(key, ZSet)
    return zset


def with_scores(entries: Sequence[ScoredMember]) -> Pairs:
    """Members with their scores, as a reply."""
    return Pairs((member, score) for score, member in entries)


def replace(transaction: Transaction, key: bytes, entries: Sequence[ScoredMember]) -> list[Any]:
    """Operations that put a sorted set in the place of whatever is there; without entries there is nothing."""
    operations: list[Any] = [] if transaction.find(key) is None else [Del([key])]
    if entries:
        operations += zadd(key, entries)
    return operations


# --- setting scores ---------------------------------------------------------------------------------------------

_FLAGS: Final = frozenset([b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"])


class _Outcome(NamedTuple):
    """The result of setting scores."""

    scores: dict[bytes, float]
    """Only those that change."""
    added: int
    updated: int
    last: float | None
    """The score of the last member, if a condition did not stop it."""


def _set_scores(zset: ZSet | None, entries: Sequence[ScoredMember], flags: frozenset[bytes]) -> _Outcome:
    scores: dict[bytes, float] = {}
    added = updated = 0
    only_new, only_old = b"NX" in flags, b"XX" in flags
    only_greater, only_less, is_increment = b"GT" in flags, b"LT" in flags, b"INCR" in flags
    last: float | None = None
    for score, member in entries:
        before = scores.get(member)
        if before is None and zset is not None:
            before = zset.score(member)
        last = None
        if before is None:
            if only_old:
                continue
            added += 1
        else:
            if only_new:
                continue
            if is_increment:
                score += before
                if math.isnan(score):
                    raise CommandError("ERR resulting score is not a number (NaN)")
            if (only_less and score >= before) or (only_greater and score <= before):
                continue
            last = score
            if score == before:
                continue
            updated += 1
        last = scores[member] = score
    if zset is not None and added + updated > len(scores):  # a member came twice, and may be back where it was
        scores = {member: score for member, score in scores.items() if zset.score(member) != score}
    return _Outcome(scores, added, updated, last)


def _add(transaction: Transaction, arguments: Arguments, flags: frozenset[bytes]) -> Decision:
    at = 2
    while at < len(arguments) and arguments[at].upper() in _FLAGS:
        flags |= {arguments[at].upper()}
        at += 1
    pairs = arguments[at:]
    if not pairs or len(pairs) % 2:
        raise syntax_error()
    if flags >= {b"NX", b"XX"}:
        raise CommandError("ERR XX and NX options at the same time are not compatible")
    if len(flags & {b"NX", b"GT", b"LT"}) > 1:
        raise CommandError("ERR GT, LT, and/or NX options at the same time are not compatible")
    if b"INCR" in flags and len(pairs) > 2:
        raise CommandError("ERR INCR option supports a single increment-element pair")
    key = arguments[1]
    entries = list(zip(map(read_score, pairs[::2]), pairs[1::2], strict=True))
    outcome = _set_scores(find_zset(transaction, key), entries, flags)
    operations: Sequence[Any] = ()
    if outcome.scores:
        operations = zadd(key, [(score, member) for member, score in outcome.scores.items()])
    if b"INCR" in flags:
        return outcome.last, operations
    return outcome.added + (outcome.updated if b"CH" in flags else 0), operations


def zadd_(transaction: Transaction, arguments: Arguments) -> Decision:
    if len(arguments) != 4 or arguments[2].upper() in _FLAGS:
        return _add(transaction, arguments, frozenset())
    score, member = read_score(arguments[2]), arguments[3]  # hot: one member, and no options
    zset = find_zset(transaction, arguments[1])
    before = None if zset is None else zset.score(member)
    if before is not None and before == score:
        return 0, []
    return 1 if before is None else 0, zadd_one(arguments[1], score, member)


def zincrby(transaction: Transaction, arguments: Arguments) -> Decision:
    return _add(transaction, arguments, frozenset([b"INCR"]))


def zrem_(transaction: Transaction, arguments: Arguments) -> Decision:
    key = arguments[1]
    zset = find_zset(transaction, key)
    if zset is None:
        return 0, []
    members = [member for member in dict.fromkeys(arguments[2:]) if member in zset]
    return len(members), zrem(key, members) if members else []


# --- looking up -------------------------------------------------------------------------------------------------


def zcard(transaction: Transaction, arguments: Arguments) -> Reply:
    return len(find_zset(transaction, arguments[1]) or ())


def zscore(transaction: Transaction, arguments: Arguments) -> Reply:
    zset = find_zset(transaction, arguments[1])
    return None if zset is None else zset.score(arguments[2])


def zmscore(transaction: Transaction, arguments: Arguments) -> Reply:
    zset = find_zset(transaction, arguments[1])
    return [None if zset is None else zset.score(member) for member in arguments[2:]]


def _rank(transaction: Transaction, arguments: Arguments, *, is_reverse: bool) -> Reply:
    if len(arguments) > 4:
        raise CommandError(f"ERR wrong number of arguments for '{arguments[0].decode().lower()}' command")
    wants_score = len(arguments) == 4
    if wants_score and arguments[3].upper() != b"WITHSCORE":
        raise syntax_error()
    member = arguments[2]
    zset = find_zset(transaction, arguments[1])
    rank = None if zset is None else zset.rank(member)
    if zset is None or rank is None:
        return NULL_ARRAY if wants_score else None
    place = len(zset) - 1 - rank if is_reverse else rank
    return [place, zset.score(member)] if wants_score else place


def zrank(transaction: Transaction, arguments: Arguments) -> Reply:
    return _rank(transaction, arguments, is_reverse=False)


def zrevrank(transaction: Transaction, arguments: Arguments) -> Reply:
    return _rank(transaction, arguments, is_reverse=True)


# --- drawing and scanning ---------------------------------------------------------------------------------------


def zrandmember(transaction: Transaction, arguments: Arguments) -> Reply:
    random = transaction.store.random
    if len(arguments) == 2:
        zset = find_zset(transaction, arguments[1])
        return None if zset is None else zset.at(random.randrange(len(zset)))[1]
    count = drawn_count(arguments[2])
    wants_scores = len(arguments) > 3
    if len(arguments) > 4 or (wants_scores and arguments[3].upper() != b"WITHSCORES"):
        raise syntax_error()
    if wants_scores:
        check_pairs_count(count)
    zset = find_zset(transaction, arguments[1])
    if zset is None:
        return []
    size = len(zset)
    if count >= size:
        entries = list(zset)
    elif count >= 0:
        entries = [zset.at(place) for place in random.sample(range(size), count)]
    elif -count > limits.DRAWN_MEMBERS_MAX:
        raise CommandError("ERR value is out of range")
    else:
        entries = [zset.at(random.randrange(size)) for _ in range(-count)]
    return with_scores(entries) if wants_scores else [member for _, member in entries]


def zscan(transaction: Transaction, arguments: Arguments) -> Reply:
    scan_cursor(arguments[2])  # a bad one is refused even for a key that is not there; a bad option is not
    key = arguments[1]
    zset = find_zset(transaction, key)
    if zset is None:
        return [b"0", []]
    cursor, members = scan_members(transaction, key, zset.members(), scan_options(arguments, 2))
    is_listpack = not zset.is_large
    reply: list[bytes] = []
    for member in members:
        score = zset.score(member)
        assert score is not None
        # The only command that shows a listpack's integers as they are stored: 1e17 in figures.
        is_integer = is_listpack and score.is_integer() and abs(score) <= _LISTPACK_INTEGER_MAX
        reply += (member, b"%d" % score if is_integer else format_double(score))
    return [b"%d" % cursor, reply]


COMMANDS: list[Command] = [
    write(
        SORTED_SET,
        "ZADD",
        -4,
        zadd_,
        ONE_KEY,
        "denyoom fast",
        summary="add members or change their scores, with conditions",
    ),
    write(SORTED_SET, "ZINCRBY", 4, zincrby, ONE_KEY, "denyoom fast", summary="add to the score of a member"),
    write(SORTED_SET, "ZREM", -3, zrem_, ONE_KEY, "fast", summary="remove members"),
    read(SORTED_SET, "ZCARD", 2, zcard, ONE_KEY, "fast", summary="return the number of members"),
    read(SORTED_SET, "ZSCORE", 3, zscore, ONE_KEY, "fast", summary="return the score of a member"),
    read(SORTED_SET, "ZMSCORE", -3, zmscore, ONE_KEY, "fast", summary="return the scores of several members"),
    read(SORTED_SET, "ZRANK", -3, zrank, ONE_KEY, "fast", summary="return the rank of a member, lowest score first"),
    read(
        SORTED_SET,
        "ZREVRANK",
        -3,
        zrevrank,
        ONE_KEY,
        "fast",
        summary="return the rank of a member, highest score first",
    ),
    read(SORTED_SET, "ZRANDMEMBER", -2, zrandmember, ONE_KEY, summary="return random members"),
    read(SORTED_SET, "ZSCAN", -3, zscan, ONE_KEY, summary="return members and scores, some at a time"),
]
