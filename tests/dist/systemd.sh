#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The .deb under a real systemd: boots Debian 12's user space with Debian 13's kernel in QEMU (TCG, no KVM), where
# systemd_guest.py installs, starts, reloads, kills, upgrades, stops and purges the service. `tests/dist/run.sh systemd` runs this.
# tests/dist/systemd.sh DEB NEWER_DEB; the console's output is in build/vm/systemd.log.
set -euo pipefail
cd "$(dirname "$0")/../.."
deb=$(realpath "$1") newer=$(realpath "$2")
cache=$PWD/build/cache/vm work=$PWD/build/vm root=$PWD/build/cache/vm/root-systemd
machine=${MACHINE:-trixie}
seconds=${TIMEOUT:-900}

fail() { printf 'check-dist: systemd: %s\n' "$*" >&2; exit 1; }

[ "$(uname -m)" = x86_64 ] || fail "the emulator is fetched for x86-64 so far"
tests/vm/fetch.sh "$machine"
mkdir -p "$work"

if [ ! -d "$root" ]; then
    rm -rf "$root.part"
    mmdebstrap --quiet --variant=minbase --mode=root --include=systemd-sysv,python3,libcurl4,libgnutls30,procps \
        --aptopt='Apt::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        bookworm "$root.part" "${MIRROR:-http://deb.debian.org/debian}"
    rm -rf "$root.part"/var/{cache/apt,lib/apt/lists} "$root.part"/dev/*
    mv "$root.part" "$root"
fi

# what is tested, above the root: files of a later archive win
own=$work/systemd
rm -rf "$own"
mkdir -p "$own/check" "$own/etc/systemd/system/multi-user.target.wants"
cp "$deb" "$own/check/underspan.deb"
cp "$newer" "$own/check/newer.deb"
cp deploy/underspan.json tests/dist/systemd_guest.py "$own/check/"
ln -s sbin/init "$own/init"
: >"$own/etc/machine-id"
cat >"$own/etc/systemd/system/check.service" <<'UNIT'
[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /check/systemd_guest.py
ExecStopPost=/usr/bin/systemctl --force poweroff
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
UNIT
# a program that is emulated is some twenty times slower: without the unit's share of a CPU
mkdir "$own/etc/systemd/system/underspan.service.d"
printf '[Service]\nCPUQuota=\n' >"$own/etc/systemd/system/underspan.service.d/emulated.conf"
ln -s ../check.service "$own/etc/systemd/system/multi-user.target.wants/"
# a login on the console would take its lines
ln -s /dev/null "$own/etc/systemd/system/serial-getty@ttyS0.service"
ln -s /dev/null "$own/etc/systemd/system/getty@tty1.service"

/usr/bin/python3 tests/vm/pack.py "$work/systemd.root" "$root"
/usr/bin/python3 tests/vm/pack.py "$work/systemd.own" "$own"
cat "$work/systemd.root" "$work/systemd.own" >"$work/systemd.initramfs"
rm "$work/systemd.root" "$work/systemd.own"

qemu=$cache/qemu-amd64 lib=$cache/qemu-amd64/usr/lib/x86_64-linux-gnu
timeout "$seconds" "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$qemu/lib/x86_64-linux-gnu" "$qemu/usr/bin/qemu-system-x86_64" \
    -L "$qemu/usr/share/qemu" -L "$qemu/usr/share/seabios" -cpu max -accel tcg,thread=multi -smp 2 -m 2048 -nographic -no-reboot -nic none \
    -kernel "$cache/kernel-$machine/vmlinuz" -initrd "$work/systemd.initramfs" \
    -append "console=ttyS0 panic=-1 quiet loglevel=3 systemd.show_status=false" </dev/null >"$work/systemd.log" 2>&1 || true
rm -f "$work/systemd.initramfs"

tr -d '\r' <"$work/systemd.log" | sed -n 's/^RESULT /check-dist: systemd: /p'
grep -q '^DONE' "$work/systemd.log" || fail "ended or hung before its checks did; console: build/vm/systemd.log"
! grep -q '^RESULT .*FAIL' "$work/systemd.log" || exit 1
