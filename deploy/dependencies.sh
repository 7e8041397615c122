#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the missing packages for a purpose: `deploy/dependencies.sh build [check] [demo]`.
# Debian and Ubuntu (apt); run as root or as a user with sudo, which is asked for only when something
# is missing. The embedded ClickHouse engine comes from npm, pinned by its integrity hash.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A packages=(
    [build]="clang-19 bpftool make pkg-config libbpf-dev libelf-dev zlib1g-dev libcurl4-openssl-dev
             libjansson-dev libmicrohttpd-dev libisal-dev libprotobuf-c-dev protobuf-c-compiler libcapstone-dev libcap-dev liblzma-dev uthash-dev libc6-dev linux-libc-dev"
    [check]="groff-base libcmocka-dev clang-format-19 libclang-rt-19-dev git python3 python3-pytest python3-yaml
             python3-setuptools python3-wheel nginx-light gunicorn
             python3-django python3-cheroot python3-waitress python3-uvicorn curl openssl iproute2 procps tmux util-linux binutils libcap2-bin
             systemd xz-utils musl-tools chromium chromium-driver fonts-dejavu-core python3-selenium python3-jsonschema protobuf-compiler golang-go
             golang-github-google-pprof-dev prometheus python3-prometheus-client"
    [servers]="python3-uvloop python3-httptools python3-hypercorn python3-aiohttp python3-tornado python3-gevent python3-werkzeug
             python3-fastapi python3-sqlalchemy uwsgi-core uwsgi-plugin-python3 python3-daphne python3-twisted python3-trio python3-celery haproxy"
    [kernels]="python3 xz-utils dpkg lld-19 binutils"
    [dist]="git python3 python3-setuptools python3-wheel rpm dpkg xz-utils binutils lld-19 libgnutls28-dev"
    [pictures]="chromium chromium-driver fonts-dejavu-core python3-selenium"
    [dist-check]="mmdebstrap python3 python3-yaml rpm cpio runc umoci golang-github-containers-common qemu-user-static"
    [image]="mmdebstrap python3 dpkg ca-certificates"
    [npm]="npm nodejs ca-certificates"
    [bench]="python3 gunicorn python3-django wrk coreutils redis-server redis-tools nginx-light perl postgresql util-linux binutils bpftrace libbpf-tools"
    [demo]="python3 nginx-light gunicorn python3-django python3-uvicorn curl procps"
)

log() { printf 'underspan: %s\n' "$*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else log "missing packages need root: run this as root, or install sudo"; exit 1
    fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

apt_install() {
    local missing=() p
    for p in "$@"; do installed "$p" || missing+=("$p"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || { log "no apt-get here; install by hand: ${missing[*]}"; exit 1; }
    log "installing ${missing[*]}"
    # a fresh machine has no package lists; existing lists may lack these packages
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    # no service may start by being installed: policy-rc.d is how Debian is told so
    local policy=/usr/sbin/policy-rc.d made=
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
        as_root chmod 755 $policy
        made=1
    fi
    local status=0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        "${missing[@]}" >/dev/null || status=$?
    [ -z "$made" ] || as_root rm -f $policy
    [ $status = 0 ] || { log "apt-get could not install ${missing[*]}"; exit 1; }
}

for purpose in "$@"; do
    [ -n "${packages[$purpose]:-}" ] || { log "unknown purpose '$purpose'; use ${!packages[*]}"; exit 2; }
    # shellcheck disable=SC2086
    apt_install ${packages[$purpose]}
    case $purpose in check|demo) deploy/libchdb.sh ;; esac
    case $purpose in check) tests/e2e/clickhouse_client.sh; tests/e2e/speedscope.sh; tests/e2e/grafana_schema.sh; tests/e2e/helm.sh ;; esac
done
