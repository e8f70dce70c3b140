"""The names of simulated files and folders, and what a crash makes of them.

As with contents, memory holds the names as a process sees them, and an undo log of the changes that no folder sync
has made durable. A change sets one *slot* (a name in a folder), or two for a rename, from what it held before to what
it holds after. A crash keeps or forgets each change whole, which is why a renamed file has its old name or its new
one, never neither and never both.

Changes are independent of each other, except that one is kept only with what it is *built on*:

- all earlier changes of its slots: else a file that moved away could lose its name to one that got it afterwards;
- the making of the folder that it happened in, and, if it removed a folder, all earlier changes in there: else a
  file that moved in or out would be nowhere.

Syncing a folder makes durable what was changed in it, and what that is built on; not the contents of files, and not
the folder's own name. (Only a rename from another folder saves that too: the file must be somewhere.)
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from tidelog.testing.faults import os_error
from tidelog.testing.inode import Inode

_PATHS_REMEMBERED: Final = 1000
"""How many paths are taken apart only once: the same ones are asked for again and again."""


class Folder:
    """A folder without a name. Compared by identity, as inodes are."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, DirectoryNode] = {}


DirectoryNode = Inode | Folder


class Slot(NamedTuple):
    """A name in a folder."""

    folder: Folder
    name: str


class SlotChange(NamedTuple):
    slot: Slot
    before: DirectoryNode | None
    after: DirectoryNode | None


class NameChange(NamedTuple):
    """One creation, removal or rename: kept or forgotten as a whole."""

    number: int
    """The number of the operation on the disk."""
    changes: tuple[SlotChange, ...]
    made: DirectoryNode | None = None
    """The node that was created, not moved."""
    removed: DirectoryNode | None = None
    """The node that was removed or replaced, not moved."""

    @property
    def slots(self) -> list[Slot]:
        return [change.slot for change in self.changes]

    @property
    def folders(self) -> list[DirectoryNode]:
        return [change.slot.folder for change in self.changes]


class Namespace:
    """All folders from the root down."""

    __slots__ = ("pending", "root")

    def __init__(self) -> None:
        self.root = Folder()
        """Always there and always durable."""
        self.pending: list[NameChange] = []
        """The changes that a crash may undo, oldest first."""

    # --- looking ------------------------------------------------------------------------------------------------

    def find(self, path: str) -> DirectoryNode | None:
        """What has this path, or None. An `OSError` only if the way there leads through a file."""
        node: DirectoryNode = self.root
        for part in _parts(path):
            if not isinstance(node, Folder):
                raise os_error(errno.ENOTDIR, path)
            child = node.entries.get(part)
            if child is None:
                return None
            node = child
        return node

    def get(self, path: str) -> DirectoryNode:
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        return node

    def get_file(self, path: str) -> Inode:
        node = self.get(path)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, path)
        return node

    def get_folder(self, path: str) -> Folder:
        node = self.get(path)
        if not isinstance(node, Folder):
            raise os_error(errno.ENOTDIR, path)
        return node

    def slot(self, path: str) -> Slot:
        """The slot that a path names; its folder must exist, what it holds need not."""
        parts = _parts(path)
        if not parts:
            raise os_error(errno.EBUSY, path)  # the root has no name
        return Slot(self.get_folder("/".join(parts[:-1])), parts[-1])

    def files(self) -> Iterator[Inode]:
        """Every file that has a name."""
        folders = [self.root]
        while folders:
            for node in folders.pop().entries.values():
                if isinstance(node, Folder):
                    folders.append(node)
                else:
                    yield node

    # --- changing -----------------------------------------------------------------------------------------------

    def apply(self, change: NameChange) -> None:
        for slot, _, after in change.changes:
            _set(slot, after)
        self.pending.append(change)

    def plan_create(self, number: int, path: str, node: DirectoryNode) -> NameChange:
        slot = self.slot(path)
        if slot.name in slot.folder.entries:
            raise os_error(errno.EEXIST, path)
        return NameChange(number, (SlotChange(slot, None, node),), made=node)

    def plan_remove(self, number: int, path: str) -> NameChange:
        slot = self.slot(path)
        node = self.get(path)
        if isinstance(node, Folder) and node.entries:
            raise os_error(errno.ENOTEMPTY, path)
        return NameChange(number, (SlotChange(slot, node, None),), removed=node)

    def plan_rename(self, number: int, old: str, new: str) -> NameChange | None:
        """None: both are the same file already, and there is nothing to do."""
        source, target = self.slot(old), self.slot(new)
        node, replaced = self.get(old), target.folder.entries.get(target.name)
        if node is replaced:
            return None
        if isinstance(node, Folder) and target.folder in _folders_from(node):
            raise os_error(errno.EINVAL, new)
        if isinstance(replaced, Folder):
            if not isinstance(node, Folder):
                raise os_error(errno.EISDIR, new)
            if replaced.entries:
                raise os_error(errno.ENOTEMPTY, new)
        elif replaced is not None and isinstance(node, Folder):
            raise os_error(errno.ENOTDIR, new)
        changes = (SlotChange(source, node, None), SlotChange(target, replaced, node))
        return NameChange(number, changes, removed=replaced)

    # --- what becomes durable -----------------------------------------------------------------------------------

    def sync(self, folder: Folder, is_reached: Callable[[], bool] = lambda: True) -> None:
        """Make durable what was changed in a folder; of a sync cut short, only the changes that it reached."""
        self._make_durable(lambda slot: slot.folder is folder and is_reached())

    def settle_path(self, path: str) -> None:
        """Make one path durable, from the root down."""
        parts = _parts(path)
        way = {self.slot("/".join(parts[: depth + 1])) for depth in range(len(parts))}
        self._make_durable(way.__contains__)

    def _make_durable(self, is_asked_for: Callable[[Slot], bool]) -> None:
        """Take from the log what changed the slots asked for, and what that was built on."""
        slots: set[Slot] = set()
        """Slots whose earlier changes are built on; likewise, folders whose making is, and changes in which are."""
        folders_made: set[DirectoryNode] = set()
        folders_removed: set[DirectoryNode | None] = set()
        still_pending: list[NameChange] = []
        for change in reversed(self.pending):
            is_built_on = (
                not slots.isdisjoint(change.slots)
                or change.made in folders_made
                or not folders_removed.isdisjoint(change.folders)
            )
            if is_built_on or any(map(is_asked_for, change.slots)):
                slots.update(change.slots)
                folders_removed.add(change.removed)
                if len(set(change.folders)) > 1 or change.made in folders_made:
                    folders_made.update(change.folders)
            else:
                still_pending.append(change)
        still_pending.reverse()
        self.pending = still_pending

    def crash(self, is_kept: Callable[[int], bool]) -> None:
        """Forget the changes whose number is not kept, and what was built on them."""
        forgotten: list[NameChange] = []
        slots: set[Slot] = set()
        folders_made: set[DirectoryNode] = set()
        folders_changed: set[DirectoryNode] = set()
        """Slots, makings of folders (and so all folders below) and changes in folders that are forgotten."""
        for change in self.pending:
            if (
                not is_kept(change.number)
                or not slots.isdisjoint(change.slots)
                or not folders_made.isdisjoint(change.folders)
                or change.removed in folders_changed
            ):
                forgotten.append(change)
                slots.update(change.slots)
                if isinstance(change.made, Folder):
                    folders_made.update(_folders_from(change.made))
                folders_changed.update(change.folders)
        for change in reversed(forgotten):
            for slot, before, _ in change.changes:
                _set(slot, before)
        self.pending = []

    def clone(self) -> Namespace:
        twins: dict[DirectoryNode, DirectoryNode] = {}

        def twin_folder(folder: Folder) -> Folder:
            known = twins.get(folder)
            if isinstance(known, Folder):
                return known
            twin = twins[folder] = Folder()
            for name, node in folder.entries.items():
                twin.entries[name] = twin_node(node)
            return twin

        def twin_node(node: DirectoryNode) -> DirectoryNode:
            if isinstance(node, Folder):
                return twin_folder(node)
            twin = twins.get(node)
            if twin is None:
                twin = twins[node] = node.clone()
            return twin

        def twin_or_none(node: DirectoryNode | None) -> DirectoryNode | None:
            return None if node is None else twin_node(node)

        def twin_slot_change(change: SlotChange) -> SlotChange:
            (folder, name), before, after = change
            return SlotChange(Slot(twin_folder(folder), name), twin_or_none(before), twin_or_none(after))

        twin = Namespace()
        twin.root = twin_folder(self.root)
        twin.pending = [
            NameChange(number, tuple(map(twin_slot_change, changes)), twin_or_none(made), twin_or_none(removed))
            for number, changes, made, removed in self.pending
        ]
        return twin


@lru_cache(_PATHS_REMEMBERED)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part and part != ".")


def _set(slot: Slot, node: DirectoryNode | None) -> None:
    if node is None:
        slot.folder.entries.pop(slot.name, None)
    else:
        slot.folder.entries[slot.name] = node


def _folders_from(folder: Folder) -> Iterator[Folder]:
    """A folder and all below it."""
    yield folder
    for node in folder.entries.values():
        if isinstance(node, Folder):
            yield from _folders_from(node)
