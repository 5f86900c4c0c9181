"""One decorator for every kernel, and where compiled code is kept.

A kernel is a function on plain arrays that numba compiles the first time it is called. All of them release the GIL, so
trees can grow in parallel threads; none uses `fastmath` or `prange`, which change bits.

numba's disk cache notices an edit of a kernel's own file but not of a file it calls. The cache therefore lives in a
directory named by a hash of all sources of the engine: any edit starts a fresh one. Where no directory can be written
(a read-only container without a home, or a process that has given up its rights since) kernels are compiled in memory
and everything else works the same.

Before its first kernel numba imports scipy.linalg, if it is installed, only to see whether it is there: a sixth of a
second that no kernel of ours needs. We tell numba that it is. Code of others that needs it will import it then."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import register_jitable
from numba.np import linalg

F = TypeVar("F", bound=Callable[..., Any])
Record = Any
"""One line of a structured array; numba knows its fields. It is a pointer: it must not outlive the array."""


def cache_directory() -> Path:
    """Where compiled kernels of exactly these sources, this numba and this user are kept."""
    sources = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    base = os.environ.get("DYNFRSDB_KERNEL_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "dynfrsdb" / f"kernels-{sources.hexdigest()[:16]}"


def _writable(directory: Path) -> bool:
    if not directory.is_absolute():
        return False  # there is no home directory to be found
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


CACHE = cache_directory()
CACHED = _writable(CACHE)


def _compiled(function: F, **options: Any) -> F:
    before = config.CACHE_DIR
    config.CACHE_DIR = str(CACHE) if CACHED else before
    try:
        compiled: F = numba.njit(nogil=True, error_model="numpy", **options)(function)
    finally:
        config.CACHE_DIR = before
    return compiled


def _if_possible(use_cache: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but a file that cannot be read or written is like none."""

    def use(*args: Any) -> Any:
        try:
            return use_cache(*args)
        except OSError:
            return None

    return use


def kernel(function: F) -> F:
    """Compile `function` lazily: no GIL, no fast maths, division as in numpy, kept on disk where that is possible."""
    compiled = _compiled(function, cache=CACHED, _nrt=True)
    if CACHED:
        cache: Any = compiled._cache  # type: ignore[attr-defined]
        cache.load_overload, cache.save_overload = _if_possible(cache.load_overload), _if_possible(cache.save_overload)
    return compiled


def inner(function: F) -> F:
    """A kernel that only kernels call, and that takes no memory of its own.

    Without the door for Python, which would take longer to compile than the kernel. And it counts no owners: whoever
    called it holds all arrays that it sees, so it need not note that a part of one is looked at. Each such note is a
    call, behind which the processor has to read again where every array is. (So it cannot return an array that it was
    not given.)
    """
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)


def maker(function: F) -> F:
    """As `inner`, for one that takes memory of its own, and gives it back."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=True)


def anywhere(function: F) -> F:
    """A function that Python calls as it is, and kernels compiled."""
    both: F = register_jitable(function)
    return both


def inlined(function: F) -> F:
    """A part of one kernel that has a name of its own: it is compiled only as part of its caller.

    A kernel that calls another optimises it again, so a deep chain of large ones would be compiled many times over.
    """
    return _compiled(function, inline="always")


def _spare_scipy() -> None:
    """Let numba's `arraymath`, when it is first imported, take scipy for granted."""
    if find_spec("scipy") is not None and hasattr(linalg, "ensure_blas"):
        ensure_blas, linalg.ensure_blas = linalg.ensure_blas, lambda: None
        try:
            import numba.np.arraymath  # noqa: F401
        finally:
            linalg.ensure_blas = ensure_blas


_spare_scipy()

# A child that inherited numba's lock from a thread which was just loading a kernel would wait for it for ever.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)
