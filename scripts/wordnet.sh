#!/usr/bin/env bash
# Installs WordNet, from whose words the generated worlds are invented: Debian's package wordnet-base.
# Where it cannot, it says so, and the tests that need it are skipped.
set -euo pipefail

if [ -e "${KBQA_WORDNET:-/usr/share/wordnet}/data.noun" ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "wordnet: not here; install Debian's package wordnet-base, or set KBQA_WORDNET to WordNet's directory" >&2
    exit 0
fi
echo "wordnet: installing wordnet-base"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    wordnet-base; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "wordnet: wordnet-base could not be installed, the tests that need it are skipped" >&2
fi
