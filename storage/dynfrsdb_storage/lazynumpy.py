"""numpy, imported when it is first used.

Importing numpy takes longer than opening a store and reading a record. Most of what is asked at a terminal (how large
is it, what is in the ledger, draw me a tree) needs no array. So modules on the way to a snapshot write

    if TYPE_CHECKING:
        import numpy as np
    else:
        from dynfrsdb_storage import lazynumpy as np

and use np as ever, though not while they are being imported. The first use of a name costs the import, all later ones
what a name of a module costs. (`importlib.util.LazyLoader` does not serve: before Python 3.12 the second `import numpy`
already loads it.)
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import numpy

    found = globals()[name] = getattr(numpy, name)
    return found
