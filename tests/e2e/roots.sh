#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the tests' programs that this machine lacks, into build/cache:
#   gunicorn-NN   trixie's and sid's gunicorn, whose gthread workers hand connections over differently; for PYTHONPATH
#   root-SUITE    all CPythons of bookworm, trixie and sid with the libraries they need: a tree to chroot into. Each is
#                 there linked statically (python3.X), and as a library with a program that loads it (python3.X-shared)
#   arm64-SUITE   the same interpreters for arm64: files that are read, not run
#   arm64-headers the C library's headers for arm64, to compile CPython's own with
# Nothing is installed. apt itself downloads them (with lists of its own, from the mirror this machine uses) and checks
# the signatures.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/build/cache
mkdir -p "$cache"

fail() { printf 'roots.sh: %s\n' "$*" >&2; exit 1; }

mirror() {
    local codename
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "Codename: $codename" | head -n 1
}

# $1: tree, others: packages
unpack() {
    local tree=$1 deb
    shift
    mkdir -p "$work/debs.new"
    (cd "$work/debs.new" && apt-get "${options[@]}" download "$@") || fail "cannot download $* of $suite"
    for deb in "$work/debs.new"/*.deb; do dpkg-deb -x "$deb" "$tree"; done
    rm -r "$work/debs.new"
}

# A directory appears only when complete; if the target exists, a parallel run was faster with the
# same files.
keep() {
    mv -T "$1" "$2" 2>/dev/null || [ -d "$2" ]
}

fetch_gunicorn() {
    local version target
    unpack "$work/gunicorn" python3-gunicorn python3-packaging
    version=$(sed -n 's/^version_info = (\([0-9]*\),.*/\1/p' \
        "$work/gunicorn/usr/lib/python3/dist-packages/gunicorn/__init__.py")
    [ -n "$version" ] || fail "gunicorn of $suite does not tell its version"
    target=$cache/gunicorn-$version
    keep "$work/gunicorn/usr/lib/python3/dist-packages" "$target"
    ln -sfn "gunicorn-$version" "$cache/gunicorn-$suite"
}

versions() { apt-cache "${options[@]}" pkgnames python3. | grep -Ex 'python3\.[0-9]+' | sort -V; }

# A program that only calls libpython.
make_launcher() {
    local tree=$1 name=$2 library=$3
    printf 'int Py_BytesMain(int, char **);\nint main(int c, char **v) { return Py_BytesMain(c, v); }\n' >"$work/main.c"
    "${CC:-clang-19}" -O2 -o "$tree/usr/bin/$name-shared" "$work/main.c" "$library" -Wl,--allow-shlib-undefined
}

fetch_pythons() {
    local tree=$work/root name names=() libraries folder
    mkdir -p "$tree"/{usr/{bin,lib,lib64,sbin},proc,dev,sys,tmp,etc}
    for name in $(versions); do
        names+=("$name" "$name-minimal" "lib$name" "lib$name-minimal" "lib$name-stdlib")
    done
    libraries=(libc6 zlib1g libexpat1 libgcc-s1 libzstd1 libffi8 liblzma5 libbz2-1.0 libuuid1)
    unpack "$tree" "${names[@]}" "${libraries[@]}"
    # merged /usr: packages of today have no /lib any more, and programs ask for /lib64/ld-linux-x86-64.so.2
    for folder in bin lib lib64 sbin; do
        if [ -d "$tree/$folder" ]; then cp -a "$tree/$folder/." "$tree/usr/$folder/"; fi
        rm -rf "${tree:?}/$folder"
        ln -s "usr/$folder" "$tree/$folder"
    done
    for name in $(versions); do
        make_launcher "$tree" "$name" "$(echo "$tree"/usr/lib/*/lib"$name".so.1.0)"
    done
    keep "$tree" "$cache/root-$suite"
}

fetch_arm64() {
    local tree=$work/arm64 name names=()
    for name in $(versions); do names+=("$name-minimal:arm64" "lib$name:arm64"); done
    unpack "$tree" "${names[@]}"
    find "$tree" -type f ! -name 'python3.*' ! -name 'libpython3.*' -delete
    keep "$tree" "$cache/arm64-$suite"
}

fetch_headers() {
    unpack "$work/headers" libc6-dev:arm64 linux-libc-dev:arm64 libcrypt-dev:arm64
    keep "$work/headers/usr/include" "$cache/arm64-headers"
}

wants_headers() { [ "$suite" = bookworm ] && [ ! -d "$cache/arm64-headers" ]; }
wants_gunicorn() { [ "$suite" != bookworm ] && [ ! -e "$cache/gunicorn-$suite" ]; }
whole() { ! wants_gunicorn && ! wants_headers && [ -d "$cache/root-$suite" ] && [ -d "$cache/arm64-$suite" ]; }

fetch_suite() {
    local suite=$1 work uri
    ! whole || return 0
    uri=$(mirror)
    [ -n "$uri" ] || fail "apt names no mirror for this release, so there is no way to get $suite's programs"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    mkdir -p "$work"/{lists/partial,cache}
    echo "deb [arch=$(dpkg --print-architecture),arm64] $uri $suite main" >"$work/sources.list"
    : >"$work/status"
    # the password-less _apt user cannot write into a 0700 directory; root (or this user) can
    local options=(-qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o Acquire::Languages=none
        -o "Dir::State::status=$work/status" -o APT::Sandbox::User=
        -o "APT::Architectures::=$(dpkg --print-architecture)" -o APT::Architectures::=arm64)
    apt-get "${options[@]}" update || fail "cannot read the package lists of $suite"
    ! wants_gunicorn || fetch_gunicorn
    ! wants_headers || fetch_headers
    [ -d "$cache/root-$suite" ] || fetch_pythons
    [ -d "$cache/arm64-$suite" ] || fetch_arm64
    rm -rf "$work"
    trap - EXIT
}

for suite in bookworm trixie sid; do fetch_suite "$suite"; done
