"""What we ask of the disk, and where we refuse to live.

A store needs three things that a local file system gives and a network share does not promise: a memory map that
shows what another process just wrote, locks that die with their process, and a sync that means it. So network file
systems are refused when a store is created or opened, by the number that statfs(2) reports.

One more courtesy is asked: some 64 MB allocated behind data.mdb without changing its size (`fallocate` with
FALLOC_FL_KEEP_SIZE). On a full disk removals then still go through, because LMDB needs fresh pages before it frees
old ones. Where the file system cannot do that, we go on without.
"""

import ctypes
import errno
import os
from pathlib import Path

from dynfrsdb_storage import layout
from dynfrsdb_storage.errors import Error, ReadOnly, StoreFull, UnsupportedPlace

_NETWORK = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFE534D42: "smb2",
    0xFF534D42: "cifs",
    0x01021997: "9p",
    0x00C36400: "ceph",
    0x5346414F: "afs",
    0x73757245: "coda",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
}
_FUSE = 0x65735546
_NETWORK_FUSE = ("sshfs", "glusterfs", "s3fs", "rclone", "gcsfuse", "goofys", "blobfuse", "davfs", "cephfs", "juicefs")
_KEEP_SIZE = 1
_NEXT_TO_NOTHING = 1 << 20


def refuse_network(path: Path) -> None:
    """Raise if `path` lies on a file system whose locks and maps are not those of one machine."""
    kind = network_kind(_statfs_type(path), path)
    if kind is not None:
        raise UnsupportedPlace(f"'{path}' is on a network file system ({kind}); put the store on a local disk")


def network_kind(magic: int | None, path: Path) -> str | None:
    """The name of the network file system with this statfs number, or None if it is a local one."""
    if magic is None:
        return None
    if magic == _FUSE:
        return next((kind for kind in _NETWORK_FUSE if kind in _mount_type(path)), None)
    return _NETWORK.get(magic)


def sync_data(descriptor: int) -> None:
    """Make a file's content durable."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_at(descriptor: int, data: memoryview | bytes, offset: int) -> None:
    """pwrite all of `data`; never through a map, where a full disk would be SIGBUS instead of an error."""
    view = memoryview(data).cast("B")
    while view:
        try:
            done = os.pwrite(descriptor, view, offset)
        except OSError as error:
            raise disk_error(error) from error
        view, offset = view[done:], offset + done


def grow_file(descriptor: int, size: int) -> None:
    """Extend a file with zeros that have their blocks already, so that writing into them cannot run out of disk."""
    current = os.fstat(descriptor).st_size
    if current >= size:
        return
    try:
        os.posix_fallocate(descriptor, current, size - current)
    except OSError as error:
        raise disk_error(error) from error


def keep_allocated(path: Path, end: int, size: int) -> bool:
    """Allocate `size` bytes behind `end` without changing the file's size; False where that cannot be done."""
    libc = _libc()
    if libc is None or not hasattr(libc, "fallocate"):
        return False
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return bool(libc.fallocate(descriptor, _KEEP_SIZE, ctypes.c_longlong(end), ctypes.c_longlong(size)) == 0)
    finally:
        os.close(descriptor)


def lengthen(path: Path, end: int) -> int:
    """Let data.mdb, whose last page ends at `end`, go on for a while with zeros that take no room; returns its length.

    A flipped bit in a page can send LMDB up to 64 KB past that page before it notices. Within the file that is a wrong
    record, which is found out; behind its end it is SIGBUS.
    """
    length = path.stat().st_size
    if length >= end + layout.TAIL_BYTES // 2:
        return length
    os.truncate(path, end + layout.TAIL_BYTES)
    return end + layout.TAIL_BYTES


def is_full(path: Path) -> bool:
    """Whether the file system of `path` has next to no room left."""
    try:
        room = os.statvfs(path)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _NEXT_TO_NOTHING


def is_read_only(path: Path) -> bool:
    """Whether the file system of `path` is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def disk_error(error: OSError) -> OSError:
    """`error`, or the StoreFull it means."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull("the disk is full; nothing was changed. Make room and try again")
    return error


def place_error(error: OSError, path: Path) -> Error:
    """What it means that a store cannot be looked for, or be made, at `path`."""
    if isinstance(error, Error):
        return error
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnly(f"this user may not use '{path}' ({os.strerror(error.errno)}); change its permissions")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"there is no room for '{path}'; nothing was changed. Make room and try again")
    if error.errno == errno.ELOOP:
        return UnsupportedPlace(f"'{path}' leads in circles through symbolic links; name the directory itself")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return UnsupportedPlace(f"'{path}' cannot be a store ({reason}); choose another path")


def _statfs_type(path: Path) -> int | None:
    """The f_type that statfs(2) reports, or None on a system without it."""
    libc = _libc()
    if libc is None or os.uname().sysname != "Linux":
        return None
    buffer = ctypes.create_string_buffer(256)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        return None
    return int.from_bytes(buffer.raw[:8], "little") & 0xFFFFFFFF


def _mount_type(path: Path) -> str:
    """The file system type that the mount table gives for the device of `path`."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    found = [line.split(" - ", 1)[1].split()[0] for line in lines if line.split()[2] == wanted]
    return found[-1] if found else ""


def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None
