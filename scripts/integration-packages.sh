#!/usr/bin/env bash
# Installs what integration tests need and no Python package carries: Debian's Virtuoso, Chromium, Prometheus,
# Redis with TLS, iso-codes and npm.
# Where it cannot, it says so, and those tests are skipped.
set -euo pipefail

missing=()
command -v virtuoso-t >/dev/null && command -v isql-vt >/dev/null || missing+=(virtuoso-opensource-7-bin)
command -v chromium >/dev/null || missing+=(chromium)
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing+=(prometheus)
[ -x /usr/bin/redis-server ] || missing+=(redis-server)
[ -e /usr/share/iso-codes/json/iso_3166-1.json ] || missing+=(iso-codes)
command -v npm >/dev/null || missing+=(npm)
if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "integration: not here, and their tests are skipped; install Debian's packages: ${missing[*]}" >&2
    exit 0
fi
echo "integration: installing ${missing[*]}"
# The programs alone: the tests start a server of their own, and no service shall run.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install --yes --no-install-recommends \
    "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "integration: ${missing[*]} could not be installed, their tests are skipped" >&2
fi
