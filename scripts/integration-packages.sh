#!/usr/bin/env bash
# Installs what integration tests start and no Python package carries: Debian's Virtuoso.
# Where it cannot, it says so, and those tests are skipped.
set -euo pipefail

if command -v virtuoso-t >/dev/null && command -v isql-vt >/dev/null; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "integration: no Virtuoso here, its tests are skipped; install Debian's package virtuoso-opensource" >&2
    exit 0
fi
echo "integration: installing Virtuoso"
# The programs alone: the tests start a server of their own, and no service shall run.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    virtuoso-opensource-7-bin; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "integration: Virtuoso could not be installed, its tests are skipped" >&2
fi
