"""Every error that Tidelog raises on purpose, as one tree.

    TidelogError
    ├── ClientError          the caller's fault: refused, nothing changed, the caller may go on
    │   ├── CommandError         a command was refused; the text is the reply, code first
    │   │   └── WrongPassword        ... because of a password; the reply may have to wait
    │   ├── LimitExceeded        something was larger than a limit allows
    │   │   └── MessageTooLarge      ... namely a message of a channel
    │   ├── TooOld               the place asked for was erased from the journal
    │   ├── FeedDiverged         what a feed's client has seen is no longer history
    │   ├── FeedBehind           a follower does not have what a feed's client has seen, or not yet
    │   ├── HolderLapsed         this reader stalled for too long and its hold was let go
    │   ├── ClockAhead           a remote ts lies too far in the future
    │   ├── BadAddress           the URL of a server cannot be used
    │   ├── BadView              a view that is declared wrongly, or cannot be maintained
    │   ├── BadMessage           a writer of day streams was given something that is not a message
    │   ├── DayGone              a day of a job set was removed before all of it was read
    │   ├── FencedOff            a later job has taken over
    │   ├── LeaseLost            the lease of a job ended, or belongs to another
    │   └── ChannelError         a call on a channel was refused; its `code` is for programs
    │       ├── InvalidChannel       the channel cannot be: its name, or what is configured
    │       ├── SubscriptionNotFound there is no such subscriber, or no more
    │       ├── AckHandleMalformed   the handle was not given out to this subscriber
    │       ├── ChannelTokenMissing  the channel needs a token that did not come, or has expired
    │       │   ├── ChannelTokenInvalid  ... or was not issued for this service, or is none
    │       │   └── ChannelTokenRevoked  ... or was revoked
    │       ├── ChannelTokenRefused  the token that came is not for this channel
    │       └── BadChannelInput      a name or a message that cannot be kept
    ├── EnvironmentFault     the machine's fault: the disk, the folder, another process
    │   ├── DataDirectoryError   the folder cannot be used as asked
    │   │   └── DirectoryInUse   another process has it open
    │   ├── NoWayBack            a history does not reach back to where it is to be cut; nothing changed
    │   ├── JournalFull          no space: writes are refused until there is
    │   ├── JournalFailed        a write or fsync failed: writes end until a restart
    │   ├── HistoryAway          bytes lie in an object store that does not give them now: the same call works later
    │   ├── SnapshotFailed       a snapshot could not be written; the ones before it still count
    │   ├── ServerUnreachable    no server answers at an address, or it has gone away
    │   ├── ServerRefused        a server does not let us in, or refuses a request
    │   ├── BadChannelRules      the configuration of channels cannot be used
    │   ├── Contended            others changed the same keys at every attempt
    │   ├── NotConfirmed         too few replicas have a message in time; publishing it again is fine
    │   ├── ShippingError        history cannot be copied to an object store as things stand
    │   │   ├── ShippingFenced       another server has taken over: this one ships no more
    │   │   └── ShippingGap          files are gone that were not shipped: a new lineage has to begin
    │   ├── ObjectGone           an object of a copy is not there, although a manifest names it
    │   ├── ReplicationError     the link between a leader and a follower cannot go on
    │   │   ├── LinkDamaged          its bytes are not those that were sent: connect again
    │   │   ├── LinkMisused          the peer sent what the protocol does not allow
    │   │   └── LinkVersion          the peer speaks another version of the protocol
    │   └── Corruption           bytes on disk are not what was written (names file, frame and position)
    │       ├── NodeLost         a node of a stream is gone: a repair found it damaged and noted that in its place
    │       └── FormatError      the bytes break the format itself
    │           ├── NewerFormat      they use something that this version does not know
    │           └── UnreadableRecord a record does not mean anything, although its checksum is right
    └── InternalError        our fault: an invariant does not hold
        ├── ApplyFailed          state and journal may differ: the process stops
        └── TransactionTorn      a transaction below a complete cycle is not whole

An error says what was tried, where, and what to do. Errors of the operating system (`OSError`) are turned into
one of these by the part that knows what was being done.
"""

from __future__ import annotations

from typing import ClassVar, Final

__all__: Final = [
    "AckHandleMalformed",
    "ApplyFailed",
    "BadAddress",
    "BadChannelInput",
    "BadChannelRules",
    "BadMessage",
    "BadView",
    "ChannelError",
    "ChannelTokenInvalid",
    "ChannelTokenMissing",
    "ChannelTokenRefused",
    "ChannelTokenRevoked",
    "ClientError",
    "ClockAhead",
    "CommandError",
    "Contended",
    "Corruption",
    "DataDirectoryError",
    "DayGone",
    "DirectoryInUse",
    "EnvironmentFault",
    "FeedBehind",
    "FeedDiverged",
    "FencedOff",
    "FormatError",
    "HistoryAway",
    "HolderLapsed",
    "InternalError",
    "InvalidChannel",
    "JournalFailed",
    "JournalFull",
    "LeaseLost",
    "LimitExceeded",
    "LinkDamaged",
    "LinkMisused",
    "LinkVersion",
    "MessageTooLarge",
    "NewerFormat",
    "NoWayBack",
    "NodeLost",
    "NotConfirmed",
    "ObjectGone",
    "ReplicationError",
    "ServerRefused",
    "ServerUnreachable",
    "ShippingError",
    "ShippingFenced",
    "ShippingGap",
    "SnapshotFailed",
    "SubscriptionNotFound",
    "TidelogError",
    "TooOld",
    "TransactionTorn",
    "UnreadableRecord",
    "WrongPassword",
]


class TidelogError(Exception):
    """The root: catching it catches everything that Tidelog raises on purpose."""


class ClientError(TidelogError):
    """The caller asked for something that cannot be had; nothing changed."""


class CommandError(ClientError):
    """A command was refused. The message is what the client gets: a code in capitals and a sentence."""


class WrongPassword(CommandError):
    """A password was wrong, or not even compared."""

    def __init__(self, message: str, *, delay_s: float) -> None:
        super().__init__(message)
        self.delay_s = delay_s
        """How long the reply is put off: guessing is to be slow."""


class LimitExceeded(ClientError):
    """Something was larger than a limit in `limits.py` allows."""


class MessageTooLarge(LimitExceeded):
    """A message of a channel, or several that were published together, have too many bytes."""


class TooOld(ClientError):
    """The place asked for is no longer in the journal."""

    def __init__(self, message: str, *, oldest: int) -> None:
        super().__init__(message)
        self.oldest = oldest
        """The oldest place (lsn or ts, as was asked for) from which can still be read."""


class FeedDiverged(ClientError):
    """What a client has seen of a feed is no longer history."""

    def __init__(self, message: str, *, since: int) -> None:
        super().__init__(message)
        self.since = since
        """The ts up to which what it has seen still holds."""


class FeedBehind(ClientError):
    """A follower has not got what a client of a feed has seen elsewhere: it may come, or turn out to be lost."""


class HolderLapsed(ClientError):
    """A holder stalled past the limit, so the journal no longer waits for it."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
        """Which limit it was."""


class ClockAhead(ClientError):
    """A remote `ts` lies further in the future than clocks may differ."""


class BadAddress(ClientError):
    """The URL of a server cannot be used; the message never shows a password."""

    def __init__(self, message: str, *, problem: str) -> None:
        super().__init__(message)
        self.problem = problem
        """What is wrong with the URL, without the URL."""


class BadMessage(ClientError):
    """Something that was to be written into a job set is not a message: it cannot be read, or cannot be kept."""


class BadView(ClientError):
    """A view is declared wrongly, or cannot be maintained change by change; the message says what to write instead."""


class DayGone(ClientError):
    """A day of a job set was removed before all of it was read."""

    def __init__(self, message: str, *, key: str, oldest: str | None) -> None:
        super().__init__(message)
        self.key = key
        """The stream that is gone."""
        self.oldest = oldest
        """The first stream that there still is, if any: reading again goes on there."""


class FencedOff(ClientError):
    """A job with a later token has taken over; this one changed nothing and must stop."""


class LeaseLost(ClientError):
    """The lease ended before it was renewed, or another has it."""


class ChannelError(ClientError):
    """A call on a channel was refused; nothing changed."""

    code: ClassVar[str] = "tidelog.channels.refused"
    """For programs, as HTTP tells it. Those that begin with `dsps.` are the original's."""


class InvalidChannel(ChannelError):
    """There cannot be such a channel."""

    code = "dsps.storage.invalid-channel"


class SubscriptionNotFound(ChannelError):
    """There is no such subscriber: it was never made, was removed, or expired. It has to be made (again)."""

    code = "dsps.storage.subscription-not-found"


class AckHandleMalformed(ChannelError):
    """A handle that was not given out, or not to this subscriber, or for messages that the channel does not have."""

    code = "dsps.storage.ack-handle-malformed"


class ChannelTokenMissing(ChannelError):
    """A channel needs a token, and none came, or one that is not valid (any more): another token may help."""

    code = "dsps.auth.rejected"


class ChannelTokenInvalid(ChannelTokenMissing):
    """What came is no token that was issued for this service, or its time is over. It is not said which."""


class ChannelTokenRevoked(ChannelTokenMissing):
    """The token that came was revoked."""


class ChannelTokenRefused(ChannelError):
    """The token that came is a good one, but not for this channel."""

    code = "dsps.auth.rejected"


class BadChannelInput(ChannelError):
    """The name of a subscriber or of a message, a message, or a number that a channel cannot take."""

    code = "tidelog.channels.invalid-input"


class EnvironmentFault(TidelogError):
    """The machine did not do what was asked of it."""


class DataDirectoryError(EnvironmentFault):
    """The data directory cannot be used as asked."""


class DirectoryInUse(DataDirectoryError):
    """Another process has the data directory open."""


class NoWayBack(EnvironmentFault):
    """A directory cannot go back to a moment: no snapshot from before it is left, or the journal since is damaged."""


class JournalFull(EnvironmentFault):
    """There is no space left; writes are refused and resume when there is."""

    def __init__(self, message: str, *, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno
        """What the system said. Compiled code keeps no `__cause__`."""


class JournalFailed(EnvironmentFault):
    """A write or fsync failed for good; the journal takes no more writes until a restart."""


class HistoryAway(EnvironmentFault, OSError):
    """Bytes of a file that lies in an object store are not to be had now: the store does not answer, or its key is not
    here, or they are still on their way. Nothing is damaged: the same call works later. An `OSError` too, as a disk
    raises it (`shipping.tiered_disk`)."""


class SnapshotFailed(EnvironmentFault):
    """A snapshot could not be written; the ones before it still count."""


class ServerUnreachable(EnvironmentFault):
    """No server answers at an address, or it has gone away."""


class ServerRefused(EnvironmentFault):
    """A server does not let us in, or it answered a request with an error."""


class BadChannelRules(EnvironmentFault):
    """The configuration of channels cannot be used; the message names the file, the table and the key."""


class Contended(EnvironmentFault):
    """Others changed the same keys at every attempt; nothing was changed, and trying again later is fine."""


class NotConfirmed(EnvironmentFault):
    """A message or a subscriber is there, but too few replicas said in time that they have it: a failover may lose it.

    To send it again, a message with the same id, is right: it is the same one, and waits for the replicas once more.
    """

    def __init__(self, message: str, *, wanted: int, confirmed: int) -> None:
        super().__init__(message)
        self.wanted = wanted
        self.confirmed = confirmed
        """Replicas that have it."""


class ShippingError(EnvironmentFault):
    """History cannot be copied to an object store as things stand; the server itself goes on."""


class ShippingFenced(ShippingError):
    """Another server has taken over: this one must not ship any more. What it had shipped stays."""


class ShippingGap(ShippingError):
    """Segments were erased before they were shipped. Shipping goes on with a new lineage, from a snapshot."""


class ObjectGone(EnvironmentFault):
    """An object of a copy is not there, although the manifest that is read names it: retention, or somebody else."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name
        """Of the object, in its store."""


class ReplicationError(EnvironmentFault):
    """The link between a leader and a follower cannot go on. What was whole before it is good, and stays."""


class LinkDamaged(ReplicationError):
    """A checksum is wrong, or the link ended inside a piece: what was sent is sent again on the next link."""


class LinkMisused(ReplicationError):
    """The peer sent pieces that are whole and make no sense here: another program, a newer version, or a bug."""


class LinkVersion(ReplicationError):
    """The peer speaks another version of the protocol."""

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version
        """The one that it speaks."""


class Corruption(EnvironmentFault):
    """Bytes on disk are not what was written."""

    def __init__(self, problem: str, *, path: str = "", frame: int | None = None, position: int | None = None) -> None:
        self.problem = problem
        self.path = path
        self.frame = frame
        """Index of the frame in its file."""
        self.position = position
        """Position in the file, in bytes."""
        super().__init__(problem)

    def __str__(self) -> str:
        where = [self.path] if self.path else []
        if self.frame is not None:
            where.append(f"frame {self.frame}")
        if self.position is not None:
            where.append(f"position {self.position}")
        return f"{', '.join(where)}: {self.problem}" if where else self.problem


class NodeLost(Corruption):
    """A node of a stream was found damaged before, and a repair has noted in its place that it is gone."""


class FormatError(Corruption):
    """The bytes break the format: a reserved bit, a length past the end, a wrong magic."""


class NewerFormat(FormatError):
    """The bytes use something that this version does not know: a newer one may have written them."""


class UnreadableRecord(FormatError):
    """A record does not mean anything, although its checksum is right. Readers of files add where it lies."""

    def __init__(
        self,
        problem: str,
        *,
        shard: int,
        lsn: int,
        path: str = "",
        frame: int | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(problem, path=path, frame=frame, position=position)
        self.shard = shard
        self.lsn = lsn


class InternalError(TidelogError):
    """An invariant of ours does not hold: a bug, never the caller's fault."""


class ApplyFailed(InternalError):
    """An operation was applied in part, or not journaled: state and journal may differ, so the process must stop."""


class TransactionTorn(InternalError):
    """A transaction below a complete cycle is not whole: `start` and FINISH do not agree."""
