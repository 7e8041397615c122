#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the files of `make dist` in clean roots of Debian's releases: `tests/dist/run.sh [bookworm trixie sid bullseye rpm image quick
# systemd again | arm64 | first]`. In each the .deb is installed, run, upgraded, removed and purged, then the tarball; on bullseye, with a too old C
# library, apt must refuse. image: the container image, run by runc as the kubelet runs the DaemonSet. quick: the README's commands to a first answer. systemd: the unit in a booted machine. Finally
# everything is built again in a different directory: the bytes must be equal. arm64: the package for arm64, in a root under qemu-user and on
# a booted kernel. first: the first version and this one in turns over one spool (needs the history; not in the list without arguments). Nothing is installed on this host; the roots
# are below build/dist-roots. Not proven here: Amazon Linux, Ubuntu, Alpine.
set -euo pipefail
cd "$(dirname "$0")/../.."
roots=$PWD/build/dist-roots
deb=$(echo build/dist/underspan_*_"$(dpkg --print-architecture)".deb) tarball=$(echo build/dist/underspan-*-"$(uname -m)".tar.gz)
rpm=$(echo build/dist/underspan-*."$(uname -m)".rpm)
version=${deb#*underspan_} version=${version%_*}

fail() { printf 'check-dist: %s: %s\n' "$suite" "$*" >&2; exit 1; }
say() { printf 'check-dist: %s: %s\n' "$suite" "$*"; }
suite=build
[ "$(id -u)" = 0 ] || fail "needs root: chroots, and the agent's capabilities"
[ "$*" = arm64 ] || { [ -f "$deb" ] && [ -f "$tarball" ] && [ -f "$rpm" ]; } || fail "run 'make dist' first"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing: run deploy/dependencies.sh dist-check"
(cd build/dist && sha256sum --quiet -c SHA256SUMS) || fail "checksums"

# $1: Debian's release, further: options; a clean root as an archive, below the name $suite
fetch_root() {
    [ ! -s "$roots/$suite.tar" ] || return 0
    say "fetching a root"
    mkdir -p "$roots"
    # the mirror may be a snapshot of a past day
    mmdebstrap --quiet --variant=apt --mode=root --aptopt='Apt::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
        "${@:2}" "$1" "$roots/$suite.part.tar" "${MIRROR:-http://deb.debian.org/debian}"
    mv "$roots/$suite.part.tar" "$roots/$suite.tar"
}

# In the root, a mount of its own like every host's, with this host's /proc and /sys: the agent watches the host. The mounts end
# with the command.
inside() {
    unshare --mount bash -c 'mount --bind "$0" "$0" && mount --rbind /proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' \
        "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

left_over() { find "$root" -xdev -iname '*underspan*' ! -path "$root/tmp/*" -printf '%P\n'; }

# $1: expected version, $2: path
runs() {
    [ "$(inside underspan version)" = "underspan $1" ] || fail "version: $(inside underspan version 2>&1)"
    [ "$(inside which underspan)" = "$2/bin/underspan" ] || fail "not in $2/bin"
    inside underspan doctor --json >"$root/tmp/doctor.json" 2>"$root/tmp/doctor.err" || true # 1: this host lacks something
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))["ok"]' "$root/tmp/doctor.json" || fail "doctor: $(cat "$root/tmp/doctor.err")"
    inside underspan run --check --stdout | grep -q '^trackers .*gc_pause' || fail "run --check"
    [ -s "$root$2/share/man/man1/underspan.1.gz" ] && [ -s "$root$2/share/bash-completion/completions/underspan" ] || fail "man page or completion"
    grep -q "^ExecStart=$2/bin/underspan " "$root$2/lib/systemd/system/underspan.service" || fail "unit"
    inside python3 /tmp/real_run.py || fail "a real run"
}

# $1: file; the same package, of a newer version
make_newer() {
    local tree=$roots/newer
    mkdir -p "$roots"
    rm -rf "$tree"
    dpkg-deb -R "$deb" "$tree"
    sed -i "s/^Version: .*/Version: $version+1/" "$tree/DEBIAN/control"
    dpkg-deb -Znone --build "$tree" "$1" >/dev/null
    rm -rf "$tree"
}

check_deb() {
    local newer=$version+1
    cp "$deb" "$root/tmp/underspan.deb"
    inside apt-get -qq install -y /tmp/underspan.deb >"$root.log" 2>&1 || fail "install: $(tail -n 5 "$root.log")"
    runs "$version" /usr
    install -m644 deploy/underspan.json "$root/etc/underspan/"
    inside underspan run --check | grep -q 'clickhouse = https://clickhouse.example.com:8443 (/etc/underspan/underspan.json)' || fail "the host's file"
    make_newer "$root/tmp/newer.deb"
    inside apt-get -qq install -y /tmp/newer.deb >"$root.log" 2>&1 || fail "upgrade: $(tail -n 5 "$root.log")"
    [ "$(inside dpkg-query -W -f '${Version}' underspan)" = "$newer" ] || fail "upgrade"
    [ -f "$root/etc/underspan/underspan.json" ] || fail "the upgrade took the configuration"
    inside apt-get -qq install -y --allow-downgrades /tmp/underspan.deb >"$root.log" 2>&1 || fail "rollback: $(tail -n 5 "$root.log")"
    inside apt-get -qq remove -y underspan >"$root.log" 2>&1 || fail "remove: $(tail -n 5 "$root.log")"
    [ -f "$root/etc/underspan/underspan.json" ] && [ ! -e "$root/usr/bin/underspan" ] || fail "remove"
    mkdir -p "$root/var/lib/underspan/spool"
    inside dpkg --purge underspan >"$root.log" 2>&1 || fail "purge: $(tail -n 5 "$root.log")"
    [ -z "$(left_over)" ] || fail "left over after the purge: $(left_over | xargs)"
    say "deb: installed, run, upgraded, rolled back, removed, purged"
}

# the libraries remain after the purge
check_tarball() {
    inside tar -C /usr/local --strip-components=1 -xzf - <"$tarball"
    runs "$version" /usr/local
    say "tarball: unpacked, run"
}

check_too_old() {
    cp "$deb" "$root/tmp/underspan.deb"
    ! inside apt-get -q install -y /tmp/underspan.deb >"$root.log" 2>&1 || fail "installed, and cannot run"
    grep -q 'libc6 (>= 2.34)' "$root.log" || fail "no reason: $(cat "$root.log")"
    say "refused for libc6 < 2.34, as it must be"
}

# the root of $suite, of which apt knows the packages, in $root
unpack_root() {
    root=$roots/$suite
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    tar -C "$root" -xf "$roots/$suite.tar" --exclude='./dev/*'
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    inside apt-get -qq update >"$root.log" 2>&1 || fail "apt-get update: $(tail -n 3 "$root.log")"
}

# $1: suite; a clean root in $root
open_root() {
    local suite=$1
    fetch_root "$suite" --include=python3
    unpack_root
    install -m644 tests/dist/real_run.py tests/dist/quick_start.py deploy/README.md "$root/tmp/"
}

check_root() {
    open_root "$suite"
    if [ "$suite" = bullseye ]; then check_too_old; else check_deb; check_tarball; fi
    rm -rf --one-file-system "$root" "$root.log"
}

# OpenTelemetry's packages, the wheel and what pip makes of its entry points, below $1
install_sdk() {
    local wheel
    wheel=$(echo build/dist/underspan_otel-*.whl)
    mkdir -p "$1/bin" "$1/distro-1.dist-info"
    cp -r "$(deploy/demo/fetch_otel.sh)"/. "$1/"
    python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' "$wheel" "$1"
    printf 'Metadata-Version: 2.1\nName: distro\nVersion: 1\n' >"$1/distro-1.dist-info/METADATA"
    printf '[opentelemetry_configurator]\nconfigurator = opentelemetry.sdk._configuration:_OTelSDKConfigurator\n' >"$1/distro-1.dist-info/entry_points.txt"
    printf '#!/usr/bin/python3\nfrom opentelemetry.instrumentation.auto_instrumentation import run\nrun()\n' >"$1/bin/opentelemetry-instrument"
    chmod 755 "$1/bin/opentelemetry-instrument"
}

# $1: "" or tarball. The services are there before; the engine, 178 MB from npm, is this tree's: the script that fetches it finds it.
quick_start() {
    open_root bookworm
    inside apt-get -qq install -y --no-install-recommends gunicorn python3-uvicorn python3-protobuf python3-six >"$root.log" 2>&1 || fail "$(tail -n 3 "$root.log")"
    echo 'Apt::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/yes"
    install -Dm755 -t "$root/usr/local/lib/underspan" build/cache/libchdb/libchdb.so
    cp -p build/cache/libchdb/{libchdb.so,verified} "$root/usr/local/lib/underspan/"
    cp "$([ $# = 0 ] && echo "$deb" || echo "$tarball")" "$root/tmp/"
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
    install_sdk "$root/opt/sdk"
    inside env SDK=/opt/sdk python3 /tmp/quick_start.py /tmp/README.md "$@" >"$root.said" || fail "the commands of deploy/README.md"
    say "${1:-deb}: $(cat "$root.said")"
    rm "$root.said"
    rm -rf --one-file-system "$root" "$root.log"
}

check_quick() {
    deploy/libchdb.sh
    quick_start
    quick_start tarball
}

check_systemd() {
    make_newer "$roots/newer.deb"
    tests/dist/systemd.sh "$deb" "$roots/newer.deb"
    rm "$roots/newer.deb"
}

# A package of the root's own libraries and shells: what rpm asks for, named by rpm's generator from Debian's files.
make_rpm_base() {
    inside sh -c 'cd / && for name in libc.so.6 libm.so.6 libz.so.1 libcurl.so.4 libgnutls.so.30 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1; do
            [ ! -e /lib/*-linux-gnu/$name ] || readlink -f /lib/*-linux-gnu/$name; done | /usr/lib/rpm/find-provides | sed "s/^/Provides: /"' >"$root/tmp/provides"
    {
        printf 'Name: base\nVersion: 1\nRelease: 1\nSummary: x\nLicense: x\nProvides: /bin/sh\nProvides: /bin/bash\nProvides: /usr/bin/kill\nProvides: rtld(GNU_HASH)\n'
        sort -u "$root/tmp/provides"
        printf '%%description\nx\n%%files\n'
    } >"$root/tmp/base.spec"
    inside rpmbuild -bb --quiet --define '_topdir /tmp/rpm' --define '_rpmdir /tmp' --define '_rpmfilename base.rpm' /tmp/base.spec >"$root.log" 2>&1 ||
        fail "rpmbuild: $(tail -n 3 "$root.log")"
}

# $1: file; the same .rpm, of a newer version
make_newer_rpm() {
    local tree=$roots/newer
    rm -rf "$tree"
    mkdir -p "$tree"
    rpm2cpio "$rpm" | (cd "$tree" && cpio -idm --quiet)
    rpmbuild -bb --quiet --target "$(uname -m)-linux" --define "_topdir $roots/newer.rpm" --define "_rpmdir $roots/newer.rpm" --define '_rpmfilename newer.rpm' \
        --define "version_ $version+1" --define "root_ $tree" --define "__os_install_post %{nil}" --define "debug_package %{nil}" \
        --define "_build_id_links none" --define "_dbpath $roots/newer.rpm/db" deploy/dist/rpm.spec >"$root.log" 2>&1 || fail "rpmbuild: $(tail -n 3 "$root.log")"
    mv "$roots/newer.rpm/newer.rpm" "$1"
    rm -rf "$tree" "$roots/newer.rpm"
}

# $1: what was done; $2...: the calls of systemctl that the package's scripts made, in their order
scripts_called() {
    local done=$1 said
    shift
    said=$(cat "$root/tmp/called" 2>/dev/null || true)
    rm -f "$root/tmp/called"
    [ "$said" = "$(printf '%s\n' "$@")" ] || fail "$done: the scripts called systemctl: $said"
}

# By Debian's rpm in a root of Debian, with a systemctl that notes its calls.
check_rpm_root() {
    open_root bookworm
    inside apt-get -qq install -y --no-install-recommends rpm libcurl4 libgnutls30 procps >"$root.log" 2>&1 || fail "$(tail -n 3 "$root.log")"
    mkdir -p "$root/run/systemd/system"
    printf '#!/bin/sh\necho "$*" >>/tmp/called\n' >"$root/usr/bin/systemctl"
    chmod 755 "$root/usr/bin/systemctl"
    cp "$rpm" "$root/tmp/underspan.rpm"
    ! inside rpm -i --force-debian /tmp/underspan.rpm >"$root.log" 2>&1 || fail "rpm installed it without its libraries"
    make_rpm_base
    inside rpm -i --force-debian --nodeps /tmp/base.rpm >"$root.log" 2>&1 || fail "base: $(tail -n 3 "$root.log")"
    inside rpm -i --force-debian /tmp/underspan.rpm >"$root.log" 2>&1 || fail "install: $(tail -n 5 "$root.log")"
    scripts_called install daemon-reload
    inside rpm -V underspan >"$root.log" 2>&1 || fail "rpm -V: $(cat "$root.log")"
    runs "$version" /usr
    install -m644 deploy/underspan.json "$root/etc/underspan/"
    make_newer_rpm "$root/tmp/newer.rpm"
    inside rpm -U --force-debian /tmp/newer.rpm >"$root.log" 2>&1 || fail "upgrade: $(tail -n 5 "$root.log")"
    scripts_called upgrade daemon-reload daemon-reload 'try-restart underspan.service'
    [ "$(inside rpm -q --qf '%{VERSION}' underspan)" = "$version+1" ] && [ -f "$root/etc/underspan/underspan.json" ] || fail "upgrade"
    inside rpm -U --force-debian --oldpackage /tmp/underspan.rpm >"$root.log" 2>&1 || fail "rollback: $(tail -n 5 "$root.log")"
    scripts_called rollback daemon-reload daemon-reload 'try-restart underspan.service'
    runs "$version" /usr
    inside rpm -e --force-debian underspan >"$root.log" 2>&1 || fail "remove: $(tail -n 5 "$root.log")"
    scripts_called remove 'disable --now underspan.service' daemon-reload
    [ "$(left_over)" = "$(printf 'etc/underspan\netc/underspan/underspan.json')" ] || fail "left over after the removal: $(left_over | xargs)"
    rm -rf --one-file-system "$root" "$root.log"
    say "installed, run, upgraded, rolled back, removed by Debian's rpm; the scripts' calls of systemctl are as they must be"
}

check_rpm() {
    local tree=$roots/rpm
    rm -rf "$tree"
    mkdir -p "$tree/rpm" "$tree/deb"
    rpm2cpio "$rpm" | (cd "$tree/rpm" && cpio -idm --quiet)
    dpkg-deb -x "$deb" "$tree/deb"
    diff -r "$tree/rpm" "$tree/deb" >/dev/null || fail "the .rpm has other files than the .deb"
    local wrong
    wrong=$(command rpm -qpR "$rpm" | grep -v '^/bin/\(ba\)\?sh$\|^/usr/bin/kill$\|^lib\(c\|m\)\.so\.6(\|^libz\.so\.1(\|^lib\(curl\.so\.4\|gnutls\.so\.30\)(\|^rpmlib(\|^rtld(' || true)
    [ -z "$wrong" ] || fail "the .rpm requires $wrong"
    rm -rf "$tree"
    say "the files of the .deb, no requirement that differs between distributions"
    check_rpm_root
}

# the store is this host's, the Python of the other pod is of a clean root
check_image() {
    deploy/libchdb.sh
    deploy/docker/image.sh
    local archive
    archive=$(echo build/dist/underspan-*-"$(dpkg --print-architecture)".oci.tar)
    open_root bookworm
    python3 tests/dist/image.py "$archive" "$(cat "${archive%.oci.tar}.digest")" "$root" "build/release-$(uname -m)/underspan" >"$root.said" || fail "the image does not run"
    say "$(cat "$root.said")"
    rm -rf --one-file-system "$root" "$root.log" "$root.said"
}

formats=/proc/sys/fs/binfmt_misc
mounted=
no_emulation() {
    [ ! -e $formats/underspan-check-arm64 ] || echo -1 >$formats/underspan-check-arm64
    [ -z "$mounted" ] || umount $formats
}

# While this script runs, the kernel starts arm64 programs by qemu-user; a registration that is there stays.
emulate_arm64() {
    trap no_emulation EXIT
    if [ ! -e $formats/register ]; then
        mount -t binfmt_misc binfmt_misc $formats || fail "no binfmt_misc"
        mounted=1
    fi
    grep -qs '^interpreter.*qemu-aarch64' $formats/* || printf '%s' ':underspan-check-arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' >$formats/register
}

# The package in a root of Debian's arm64, by that root's own dpkg and apt
install_arm64() {
    local package=$1 version
    version=$(dpkg-deb -f "$package" Version)
    emulate_arm64
    fetch_root bookworm --architectures=arm64 --skip=check/qemu
    unpack_root
    cp "$package" "$root/tmp/underspan.deb"
    inside apt-get -qq install -y /tmp/underspan.deb >"$root.log" 2>&1 || fail "install: $(tail -n 5 "$root.log")"
    [ "$(inside underspan version)" = "underspan $version" ] || fail "version"
    inside underspan run --check --stdout | grep -q '^trackers .*gc_pause' || fail "run --check"
    cmp <(inside underspan schema) <(build/underspan schema) || fail "the tables differ from this machine's"
    inside underspan doctor >"$root.log" 2>&1 && fail "doctor: BPF under qemu-user?"
    grep -q 'the kernel refused the process object: Function not implemented' "$root.log" || fail "doctor: $(cat "$root.log")"
    inside apt-get -qq remove -y underspan >"$root.log" 2>&1 || fail "remove: $(tail -n 5 "$root.log")"
    inside dpkg --purge underspan >"$root.log" 2>&1 || fail "purge: $(tail -n 5 "$root.log")"
    [ -z "$(left_over)" ] || fail "left over after the purge: $(left_over | xargs)"
    rm -rf --one-file-system "$root" "$root.log"
    say "deb: installed, answers under qemu-user (version, run --check, doctor, the same tables), removed, purged"
}

# As there is no BPF under qemu-user, the package's program with all trackers on a booted arm64 kernel
check_arm64() {
    local package
    package=$(echo build/dist/underspan_*_arm64.deb)
    [ -f "$package" ] || fail "run 'make dist-arm64' first"
    install_arm64 "$package"
    PACKAGE=$package tests/vm/run.sh bookworm-security/arm64 || fail "on a booted arm64 kernel"
    say "deb: the program watches processes on a booted arm64 kernel"
}

check_again() {
    local again=$roots/again name
    rm -rf "$again"
    mkdir -p "$again"
    git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t "$again"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) VERSION=$version "$again/deploy/dist/dist.sh" >"$again.log" 2>&1 || fail "$(tail -n 5 "$again.log")"
    for name in "$(basename "$deb")" "$(basename "$rpm")" "$(basename "$tarball")" $(cd build/dist && echo *.whl); do
        cmp "build/dist/$name" "$again/build/dist/$name" || fail "not the same bytes a second time"
    done
    rm -rf "$again" "$again.log"
    say "a second build in another directory has the same bytes"
}

# The first version, e17fb16, of the history; the engine is this tree's.
check_first() {
    local first=$roots/first
    rm -rf "$first"
    mkdir -p "$first"
    deploy/libchdb.sh
    git archive e17fb16 | tar -C "$first" -xf - || fail "the history lacks the first version"
    make -C "$first" -j2 >"$first.log" 2>&1 || fail "build: $(tail -n 3 "$first.log")"
    tests/dist/first_version.py "$first/build/underspan" build/underspan "$first/turns" >"$first.said" || fail "rows: see $first/turns/log"
    say "$(cat "$first.said")"
    rm -rf "$first" "$first.log" "$first.said"
}

[ $# -gt 0 ] || set -- bookworm trixie sid bullseye rpm image quick systemd again
for suite in "$@"; do
    case $suite in rpm|image|arm64|quick|systemd|again|first) "check_$suite" ;; *) check_root ;; esac
done
