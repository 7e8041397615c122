#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots real Debian kernels in QEMU (TCG: no KVM is needed), runs the built agent under each beside workloads that keep
# their own truth (checks.py), and prints one line per kernel and tracker. `make check-kernels` runs this.
# tests/vm/run.sh [SUITE]...: only these; the consoles' words are in build/vm/SUITE.log.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/build/cache/vm
work=$PWD/build/vm
suites=("$@")
[ $# -gt 0 ] || suites=(bullseye-security bookworm-security trixie sid)
jobs=${JOBS:-2}
seconds=${TIMEOUT:-400} # for one machine

fail() { printf 'check-kernels: %s\n' "$*" >&2; exit 1; }

[ "$(uname -m)" = x86_64 ] || fail "the machines are x86-64 so far"
[ -x build/underspan ] || fail "build/underspan is missing: run 'make' first"
tests/vm/fetch.sh "${suites[@]}"
mkdir -p "$work"

# the agent as it is built here, with the libraries it is linked to: they are newer than some guest's
pack_agent() {
    local library
    rm -rf "$work/agent"
    mkdir -p "$work/agent/lib"
    cp build/underspan "$work/agent/underspan"
    ldd build/underspan | grep -o '/[^ ]*' | while read -r library; do cp -L "$library" "$work/agent/lib/"; done
    printf '#!/bin/busybox sh\nexec /underspan/lib/ld-linux-x86-64.so.2 --library-path /underspan/lib /underspan/underspan "$@"\n' \
        >"$work/agent/run"
    chmod 755 "$work/agent/run"
}

# $1: suite; its initramfs: the system, the agent and the tests, the kernel's modules
pack_initramfs() {
    /usr/bin/python3 tests/vm/pack.py "$work/$1.modules" "$cache/kernel-$1/modules=modules"
    cat "$work/system.cpio" "$work/common.cpio" "$work/$1.modules" >"$work/$1.initramfs"
    rm "$work/$1.modules"
}

qemu() {
    local root=$cache/qemu lib=$cache/qemu/usr/lib/x86_64-linux-gnu
    "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$root/lib/x86_64-linux-gnu" "$root/usr/bin/qemu-system-x86_64" \
        -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "$@"
}

boot() {
    local suite=$1
    pack_initramfs "$suite"
    # panic=-1 with -no-reboot: a crash of the kernel ends the machine at once, its console says why
    timeout "$seconds" bash -c "$(declare -f qemu); cache=$cache; qemu \"\$@\"" qemu \
        -accel tcg,thread=multi -cpu max -smp 2 -m 1024 -nographic -no-reboot -nic none \
        -kernel "$cache/kernel-$suite/vmlinuz" -initrd "$work/$suite.initramfs" \
        -append "console=ttyS0 panic=-1 quiet loglevel=3" </dev/null >"$work/$suite.log" 2>&1 || true
    rm -f "$work/$suite.initramfs"
}

# one line per tracker; fails when anything did
show() {
    local suite=$1 version status=0
    version=$(cat "$cache/kernel-$suite/version")
    tr -d '\r' <"$work/$suite.log" >"$work/$suite.text"
    sed -n 's/^RESULT \([^ ]*\) \([^ ]*\) /\1\t\2\t/p' "$work/$suite.text" | while IFS=$'\t' read -r tracker outcome words; do
        printf '%-26s %-12s %-5s %s\n' "$version" "$tracker" "$outcome" "$words"
    done
    if ! grep -q '^DONE' "$work/$suite.text"; then
        printf '%-26s %-12s %-5s %s\n' "$version" machine FAIL "ended or hung before its checks did; console: build/vm/$suite.log"
        status=1
    fi
    if grep -q '^RESULT [^ ]* FAIL' "$work/$suite.text"; then status=1; fi
    return $status
}

[ -e "$work/system.cpio" ] && [ "$work/system.cpio" -nt "$cache/root" ] ||
    { /usr/bin/python3 tests/vm/pack.py "$work/system.part" "$cache/root" && mv "$work/system.part" "$work/system.cpio"; }
pack_agent
mkdir -p "$work/init" && cp tests/vm/init "$work/init/init"
/usr/bin/python3 tests/vm/pack.py "$work/common.cpio" "$work/init" "$work/agent=underspan" tests/e2e=tests/e2e tests/vm=tests/vm

failed=0
for suite in "${suites[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    boot "$suite" &
done
wait
for suite in "${suites[@]}"; do show "$suite" || failed=1; done
exit $failed
