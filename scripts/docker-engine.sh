#!/usr/bin/env bash
# A Docker Engine with compose for the integration tests, where none answers: docker-engine.sh start|stop
# `start` prints what to evaluate. As root on Debian, its packages are unpacked under var/docker-engine; only runc and
# iptables are installed. Where that cannot be, it says so, and those tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/var/docker-engine
root=$home/root
compose_suite=trixie # bookworm's is version 1

skip() { echo "docker: $1; tests that need an engine are skipped" >&2; exit 0; }
answers() { docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; }

unpack() {
    local apt=$home/apt mirror suite
    mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources | head -n 1)
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mkdir -p "$apt"/{lists/partial,cache/archives/partial} "$home/packages" "$home/client/cli-plugins"
    for name in "$suite" "$compose_suite"; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $name main"
    done >"$apt/sources.list"
    printf '%s\n' "Dir::State::lists \"$apt/lists\";" "Dir::Cache \"$apt/cache\";" 'Dir::Etc::sourceparts "-";' \
        "Dir::Etc::sourcelist \"$apt/sources.list\";" 'APT::Sandbox::User "root";' >"$apt/apt.conf"
    (
        export APT_CONFIG=$apt/apt.conf
        cd "$home/packages"
        apt-get update
        apt-get download "docker.io/$suite" "containerd/$suite" "tini/$suite" "docker-compose/$compose_suite"
        for package in *.deb; do dpkg -x "$package" "$root"; done
    )
    cp "$root/usr/libexec/docker/cli-plugins/docker-compose" "$home/client/cli-plugins/"
}

case ${1:-} in
start)
    answers && exit 0
    [ "$(id -u)" -eq 0 ] && [ -e /etc/apt/sources.list.d/debian.sources ] ||
        skip "no engine answers, and only root on Debian gets one"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    apt-get install --yes --no-install-recommends runc iptables >"$log" 2>&1 ||
        skip "runc and iptables cannot be installed"
    [ -x "$home/client/cli-plugins/docker-compose" ] || unpack >"$log" 2>&1 ||
        skip "its packages cannot be fetched ($(tail -n 1 "$log"))"
    export PATH="$root/usr/bin:$root/usr/sbin:$PATH"
    export DOCKER_HOST="unix://$home/docker.sock" DOCKER_CONFIG="$home/client"
    if ! answers; then
        setsid nohup dockerd --host "$DOCKER_HOST" --data-root "$home/data" --exec-root "$home/exec" \
            --pidfile "$home/pid" --exec-opt native.cgroupdriver=cgroupfs >"$home/log" 2>&1 </dev/null &
        for _ in $(seq 120); do answers && break || sleep 0.5; done
        answers || skip "the engine does not start ($(tail -n 1 "$home/log"))"
    fi
    echo "export PATH='$PATH' DOCKER_HOST='$DOCKER_HOST' DOCKER_CONFIG='$DOCKER_CONFIG'"
    ;;
stop) [ ! -e "$home/pid" ] || kill "$(cat "$home/pid")" ;;
*) sed -n '2,4p' "$0"; exit 2 ;;
esac
