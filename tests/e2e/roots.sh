#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the gunicorns that the tests want beside this machine's own: trixie's and sid's, whose gthread workers
# hand connections over differently. They are pure Python, so unpacking is enough: build/cache/gunicorn-NN is for
# PYTHONPATH. apt itself downloads them (with lists of its own, from the mirror this machine uses) and checks the signatures.
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

# $1: suite. Leaves build/cache/gunicorn-$1 pointing to the directory named after the version; a directory
# appears only when it is whole, and two runs at once do no harm.
fetch_gunicorn() {
    local suite=$1 work uri version target
    [ ! -e "$cache/gunicorn-$suite" ] || return 0
    uri=$(mirror)
    [ -n "$uri" ] || fail "apt names no mirror for this release, so there is no way to get $suite's gunicorn"
    work=$(mktemp -d "$cache/gunicorn.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    mkdir -p "$work"/{lists/partial,cache,tree}
    echo "deb $uri $suite main" >"$work/sources.list"
    # the password-less _apt user cannot write into a 0700 directory; root (or this user) can
    local options=(-qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o Acquire::Languages=none
        -o APT::Sandbox::User=)
    apt-get "${options[@]}" update || fail "cannot read the package lists of $suite"
    (cd "$work" && apt-get "${options[@]}" download python3-gunicorn python3-packaging) ||
        fail "cannot download gunicorn of $suite"
    local deb
    for deb in "$work"/*.deb; do dpkg-deb -x "$deb" "$work/tree"; done
    version=$(sed -n 's/^version_info = (\([0-9]*\),.*/\1/p' \
        "$work/tree/usr/lib/python3/dist-packages/gunicorn/__init__.py")
    [ -n "$version" ] || fail "gunicorn of $suite does not tell its version"
    target=$cache/gunicorn-$version
    # a directory cannot be moved over a full one: then another run was faster with the same files
    mv -T "$work/tree/usr/lib/python3/dist-packages" "$target" 2>/dev/null || [ -d "$target/gunicorn" ]
    ln -sfn "gunicorn-$version" "$cache/gunicorn-$suite"
    rm -rf "$work"
    trap - EXIT
}

for suite in trixie sid; do fetch_gunicorn "$suite"; done
