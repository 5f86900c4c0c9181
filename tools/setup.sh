# Sourced by tools/check and tools/demo: enters the project's root, finds a Python, keeps .venv up to date.
#
#   setup EXTRA     .venv with this project and the dependencies of EXTRA (dev or demo) in it
#
# Installing again takes seconds even when nothing changed, so .venv keeps a copy of the pyproject.toml it was last
# installed from, one for each extra, and is left alone while that is the same.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

suitable() {
    # Debian ships Pythons without ensurepip, and pyenv ships commands that only print an error: so try, do not look.
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

newest_python() {
    local candidate
    for candidate in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3 python}; do
        if suitable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "dynfrsdb needs Python 3.11 or newer with venv, and none was found; install one or set PYTHON=/path/to/python3" >&2
    return 1
}

setup() {
    local extra=$1 python
    if ! suitable .venv/bin/python; then
        python=$(newest_python)
        echo "making .venv with $("$python" --version)" >&2
        "$python" -m venv --clear .venv
    fi
    if ! cmp -s pyproject.toml ".venv/installed-$extra.toml"; then
        echo "installing dynfrsdb[$extra] into .venv" >&2
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extra]"
        cp pyproject.toml ".venv/installed-$extra.toml"
    fi
}
