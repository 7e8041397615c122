#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the parts of the machines into build/cache/vm: the newest cloud kernel of each Debian release (kernel-MACHINE/),
# the systems for these kernels (root-ARCH/), the libraries of an agent for arm64 (sysroot-arm64/), and QEMU (qemu-ARCH/).
# apt itself downloads and checks signatures, with lists of its own, from the mirror this machine uses; nothing is installed.
# Existing directories are kept: remove a directory to renew.
# tests/vm/fetch.sh MACHINE...: a suite and, behind a slash, the architecture if that is not amd64.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/build/cache/vm
mkdir -p "$cache"

declare -A updated

fail() { printf 'check-kernels: %s\n' "$*" >&2; exit 1; }

# $1: machine
arch_of() {
    case $1 in
        */*) echo "${1#*/}" ;;
        *) echo amd64 ;;
    esac
}

# $1: suite. Exact kernel versions vanish from mirrors, so everything is resolved from the suite's lists.
suite_uri() {
    local codename uri
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    case $1 in
        *-security) codename=$codename-security ;;
    esac
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "Codename: $codename" | head -n 1)
    [ -n "$uri" ] || fail "apt names no mirror for $codename, so there is no way to get $1"
    echo "$uri"
}

# $1: suite, $2: architecture; sets apt_options. The machine's own package state does not count: nothing is installed there.
use_suite() {
    local state=$cache/apt-$1-$2
    mkdir -p "$state"/lists/partial "$state"/cache/archives/partial
    : >"$state/status"
    echo "deb $(suite_uri "$1") $1 main" >"$state/sources.list"
    # the password-less _apt user may not be able to write here
    apt_options=(-qq -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::Etc::Preferences=/dev/null" -o Dir::Etc::PreferencesParts=/dev/null
        -o "Dir::State::Lists=$state/lists" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
        -o "APT::Architecture=$2" -o "APT::Architectures=$2" -o Acquire::Languages=none -o APT::Sandbox::User= -o APT::Install-Recommends=false)
    [ -n "${updated[$1-$2]:-}" ] || apt-get "${apt_options[@]}" update || fail "cannot read the package lists of $1 for $2"
    updated[$1-$2]=1
    archives=$state/cache/archives
}

# $1: target directory, further: packages. The directory appears only when complete.
unpack() {
    local target=$1 deb package
    shift
    rm -rf "$target.part"
    mkdir -p "$target.part"
    for deb in "$archives"/*.deb; do
        package=$(basename "$deb"); package=${package%%_*}
        case " $* " in *" $package "* | "  ") dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$target.part" \
            --no-same-owner --keep-directory-symlink ;; esac
    done
    rm -f "$archives"/*.deb
}

dependencies() { apt-cache "${apt_options[@]}" depends --important --no-recommends "$1" | sed -n 's/^ *Depends: *//p'; }

# The image package, or its parts in newer releases.
fetch_kernel() {
    local suite=${1%/*} arch=$(arch_of "$1") target=$cache/kernel-${1//\//-} image part parts version
    [ ! -e "$target" ] || return 0
    use_suite "$suite" "$arch"
    image=$(dependencies "linux-image-cloud-$arch" | grep -m 1 '^linux-image-[0-9]') || fail "$suite has no cloud kernel"
    parts=$(dependencies "$image" | grep -E '^linux-(binary|modules|base)-[0-9]' || true)
    (cd "$archives" && apt-get "${apt_options[@]}" download "$image" $parts) || fail "cannot download $image of $suite"
    # shellcheck disable=SC2086
    unpack "$target" "$image" $parts
    version=${image#linux-image-}
    part=$(find "$target.part" -name "vmlinuz*" -type f | head -n 1)
    [ -n "$part" ] || fail "$image of $suite has no vmlinuz"
    mv "$part" "$target.part/vmlinuz"
    # 5.10 and 6.1: in /lib, plain; later: in /usr/lib, compressed
    mkdir "$target.part/modules"
    for part in veth ena; do
        find "$target.part/lib" "$target.part/usr/lib" -name "$part.ko*" -exec cp {} "$target.part/modules/" \; 2>/dev/null || true
    done
    find "$target.part/modules" -name '*.xz' -exec xz -d {} +
    rm -rf "$target.part"/{lib,usr,boot}
    echo "$version" >"$target.part/version"
    mv "$target.part" "$target"
}

# $1: suite, $2: architecture, $3: target, further: packages; unpacks packages and dependencies.
fetch_tree() {
    local suite=$1 arch=$2 target=$cache/$3
    shift 3
    [ ! -e "$target" ] || return 0
    use_suite "$suite" "$arch"
    rm -f "$archives"/*.deb
    apt-get "${apt_options[@]}" -y --download-only install "$@" >/dev/null || fail "cannot download $* of $suite"
    unpack "$target"
    rm -rf "$target.part"/usr/share/{doc,man,locale,info,i18n,lintian,bash-completion,zoneinfo} "$target.part"/usr/lib/*/{gconv,perl*}
    find "$target.part/usr/lib" -type d \( -name test -o -name lib2to3 -o -name ensurepip \) -prune -exec rm -rf {} +
    compile_python "$target.part"
    mv "$target.part" "$target"
}

# $1: a tree. Debian compiles Python's modules at installation; without, each start under emulation takes seconds more.
# Compiled modules are equal for all architectures. Unchecked: the tree's files have no times in the machine.
compile_python() {
    local root=$cache/root-amd64 lib=x86_64-linux-gnu
    [ -e "$1/usr/bin/python3" ] || return 0
    [ -e "$root" ] || root=$1 # the first compiles itself
    PYTHONHOME="$root/usr" "$root/lib/$lib/ld-linux-x86-64.so.2" --library-path "$root/lib/$lib:$root/usr/lib/$lib" \
        "$root/usr/bin/python3" -m compileall -q --invalidation-mode unchecked-hash "$1/usr/lib" || true
}

# QEMU 10: Debian 12's 7.2 sometimes corrupts the flags of a cmpxchg16b, and so the guest
declare -A emulator=([amd64]=qemu-system-x86 [arm64]=qemu-system-arm)
for machine in "$@"; do
    arch=$(arch_of "$machine")
    fetch_tree trixie amd64 "qemu-$arch" "${emulator[$arch]}"
    for each in amd64 "$arch"; do
        fetch_tree bookworm "$each" "root-$each" python3 python3-gunicorn python3-pkg-resources iproute2 busybox-static
    done
    [ -e "$cache/sysroot-$arch/usr/include/isa-l" ] || rm -rf "$cache/sysroot-$arch" # of an older version
    [ "$arch" = amd64 ] || fetch_tree bookworm "$arch" "sysroot-$arch" libc6-dev libgcc-12-dev libbpf-dev libelf-dev zlib1g-dev \
        libcurl4-openssl-dev libjansson-dev libmicrohttpd-dev libprotobuf-c-dev libcapstone-dev libcap-dev liblzma-dev libisal-dev uthash-dev
    fetch_kernel "$machine"
done
