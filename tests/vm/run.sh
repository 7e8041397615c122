#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots real Debian kernels in QEMU (TCG, without KVM), runs the built agent under each beside workloads with
# an independent truth (checks.py), and prints a line per kernel and tracker. `make check-kernels` runs this.
# tests/vm/run.sh [MACHINE]...: a selection, by suite or SUITE/arm64; the consoles' output is in build/vm/MACHINE.log.
# CHECKS=gil_wait,handoff: a selection of checks. PACKAGE=FILE.deb: the program of a package, for the package's architecture.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/build/cache/vm
work=$PWD/build/vm
machines=("$@")
[ $# -gt 0 ] || machines=(bullseye-security bookworm-security trixie sid bookworm-security/arm64 sid/arm64)
jobs=${JOBS:-2}
seconds=${TIMEOUT:-600} # for one machine

fail() { printf 'check-kernels: %s\n' "$*" >&2; exit 1; }

[ "$(uname -m)" = x86_64 ] || fail "the emulators are fetched for x86-64 so far"
[ -n "${PACKAGE-}" ] || [ -x build/underspan ] || fail "build/underspan is missing: run 'make' first"
tests/vm/fetch.sh "${machines[@]}"
mkdir -p "$work"

arch_of() {
    case $1 in
        */*) echo "${1#*/}" ;;
        *) echo amd64 ;;
    esac
}

# $1: a program for arm64; prints all libraries needed
libraries_of() {
    local lib=$cache/sysroot-arm64 name path
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while read -r name; do
        path=$(find "$lib/lib/aarch64-linux-gnu" "$lib/usr/lib/aarch64-linux-gnu" -maxdepth 1 -name "$name" | head -n 1)
        [ -n "$path" ] || fail "$1 needs $name, which the sysroot has not"
        [ ! -e "$work/agent-arm64/lib/$name" ] || continue
        cp -L "$path" "$work/agent-arm64/lib/$name"
        libraries_of "$path"
    done
}

# $1: architecture, $2: target; the package's program, or the one of this build
agent_program() {
    local package=$work/package
    if [ -n "${PACKAGE-}" ]; then
        [ "$(dpkg-deb -f "$PACKAGE" Architecture)" = "$1" ] || fail "$PACKAGE is not for $1"
        rm -rf "$package"
        dpkg-deb -x "$PACKAGE" "$package"
        cp "$package/usr/bin/underspan" "$2"
    elif [ "$1" = amd64 ]; then
        cp build/underspan "$2"
    else
        make -s -j"$(nproc)" MACHINE=aarch64 SYSROOT="$cache/sysroot-$1"
        cp build/aarch64/underspan "$2"
    fi
}

# $1: architecture; the agent, with its libraries, which are newer than some guests'
pack_agent() {
    local library loader agent=$work/agent-$1
    rm -rf "$agent"
    mkdir -p "$agent/lib"
    agent_program "$1" "$agent/underspan"
    if [ "$1" = amd64 ]; then
        loader=ld-linux-x86-64.so.2
        ldd "$agent/underspan" | grep -o '/[^ ]*' | while read -r library; do cp -L "$library" "$agent/lib/"; done
    else
        loader=ld-linux-aarch64.so.1
        libraries_of "$agent/underspan"
    fi
    printf '#!/bin/busybox sh\nexec /underspan/lib/%s --library-path /underspan/lib /underspan/underspan "$@"\n' $loader >"$agent/run"
    chmod 755 "$agent/run"
}

# $1: architecture; files of all machines
pack_common() {
    local system=$work/system-$1.cpio root=$cache/root-$1
    [ -e "$system" ] && [ "$system" -nt "$root" ] ||
        { /usr/bin/python3 tests/vm/pack.py "$work/system.part" "$root" && mv "$work/system.part" "$system"; }
    pack_agent "$1"
    /usr/bin/python3 tests/vm/pack.py "$work/common-$1.cpio" "$work/init" "$work/agent-$1=underspan" tests/e2e=tests/e2e tests/vm=tests/vm
}

# $1: machine; the initramfs: the system, the agent and the tests, the kernel's modules
pack_initramfs() {
    local name=${1//\//-} arch
    arch=$(arch_of "$1")
    /usr/bin/python3 tests/vm/pack.py "$work/$name.modules" "$cache/kernel-$name/modules=modules"
    cat "$work/system-$arch.cpio" "$work/common-$arch.cpio" "$work/$name.modules" >"$work/$name.initramfs"
    rm "$work/$name.modules"
}

# $1: architecture, further: arguments of QEMU, which runs with its own libraries
qemu() {
    local root=$cache/qemu-$1 lib=$cache/qemu-$1/usr/lib/x86_64-linux-gnu
    declare -A machine=([amd64]="x86_64 -cpu max" [arm64]="aarch64 -machine virt -cpu max,pauth-impdef=on")
    # shellcheck disable=SC2086
    set -- ${machine[$1]} "${@:2}"
    "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$root/lib/x86_64-linux-gnu" "$root/usr/bin/qemu-system-$1" \
        -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "${@:2}"
}

boot() {
    local name=${1//\//-} arch console
    arch=$(arch_of "$1")
    console=ttyS0
    [ "$arch" = amd64 ] || console=ttyAMA0
    pack_initramfs "$1"
    # panic=-1 with -no-reboot: a crash of the kernel ends the machine at once, with the reason on the console
    timeout "$seconds" bash -c "$(declare -f qemu); cache=$cache; qemu \"\$@\"" qemu "$arch" \
        -accel tcg,thread=multi -smp 2 -m 1024 -nographic -no-reboot -nic none \
        -kernel "$cache/kernel-$name/vmlinuz" -initrd "$work/$name.initramfs" \
        -append "console=$console panic=-1 quiet loglevel=3 CHECKS=${CHECKS-}" </dev/null >"$work/$name.log" 2>&1 || true
    rm -f "$work/$name.initramfs"
}

# a line per tracker; fails on any failure
show() {
    local name=${1//\//-} version status=0
    version=$(cat "$cache/kernel-$name/version")
    tr -d '\r' <"$work/$name.log" >"$work/$name.text"
    sed -n 's/^RESULT \([^ ]*\) \([^ ]*\) /\1\t\2\t/p' "$work/$name.text" | while IFS=$'\t' read -r tracker outcome words; do
        printf '%-26s %-12s %-5s %s\n' "$version" "$tracker" "$outcome" "$words"
    done
    if ! grep -q '^DONE' "$work/$name.text"; then
        printf '%-26s %-12s %-5s %s\n' "$version" machine FAIL "ended or hung before its checks did; console: build/vm/$name.log"
        status=1
    fi
    if grep -q '^RESULT [^ ]* FAIL' "$work/$name.text"; then status=1; fi
    return $status
}

mkdir -p "$work/init" && cp tests/vm/init "$work/init/init"
for arch in $(for machine in "${machines[@]}"; do arch_of "$machine"; done | sort -u); do pack_common "$arch"; done

failed=0
for machine in "${machines[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    boot "$machine" &
done
wait
for machine in "${machines[@]}"; do show "$machine" || failed=1; done
exit $failed
