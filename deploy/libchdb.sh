#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the embedded ClickHouse engine (libchdb.so, from its npm package): `libchdb.sh [DIR]`. DIR is build/cache/libchdb in the
# source tree, /usr/local/lib/underspan for a package's copy of this script: underspan looks in both.
# The version and the package's SHA-512 are pinned; a mismatch is deleted.
# Does nothing when the verified library is there.
set -euo pipefail
cd "$(dirname "$0")/.."

version=26.7.3-stable.1
case $(uname -m) in
x86_64)
    package=@chdb/lib-linux-x64-gnu
    sha512=XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw==
    ;;
*)
    echo "underspan: there is no embedded ClickHouse engine for $(uname -m); use a ClickHouse server" >&2
    exit 1
    ;;
esac

installer=deploy/dependencies.sh directory=build/cache/libchdb
[ -x $installer ] || { installer=''; directory=/usr/local/lib/underspan; }
directory=${1:-$directory}
library=$directory/libchdb.so
verified=$directory/verified

log() { printf 'underspan: %s\n' "$*" >&2; }
fail() { log "$*"; exit 1; }

# identity of the verified file: the package's hash, the file's size and time
fingerprint() { printf '%s %s\n' "$sha512" "$(stat -c '%s %Y' "$library")"; }
is_verified() { [ -f "$library" ] && [ -f "$verified" ] && [ "$(fingerprint)" = "$(cat "$verified")" ]; }

is_verified && exit 0
{ mkdir -p "$directory" && [ -w "$directory" ]; } || fail "cannot write $directory: run this as root, or name a directory and give --libchdb=DIRECTORY/libchdb.so"
# two builds at once: the second waits and finds the library there
exec 9>"$directory/.lock"
flock 9
is_verified && exit 0

[ -z "$installer" ] || command -v npm >/dev/null || $installer npm
command -v npm >/dev/null || fail "npm is needed to fetch the embedded ClickHouse engine; install npm, or use a ClickHouse server"

work=$(mktemp -d "$directory/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
log "fetching the embedded ClickHouse engine ($package $version, 178 MB packed)"
started=$SECONDS
npm pack --silent --loglevel=error --pack-destination "$work" "$package@$version" \
    >"$work/name" 2>"$work/errors" 9>&- ||
    { cat "$work/errors" >&2; fail "npm could not fetch $package $version"; }
archive=$work/$(tail -n 1 "$work/name")
[ -f "$archive" ] || archive=$(find "$work" -name '*.tgz' -print -quit)
[ -f "$archive" ] || fail "npm fetched no package for $package $version"

actual=$(if command -v openssl >/dev/null; then openssl dgst -sha512 -binary "$archive"
    else sha512sum "$archive" | cut -d' ' -f1 | tr a-f A-F | basenc --base16 -d; fi | base64 -w0)
[ "$actual" = "$sha512" ] ||
    fail "$package $version does not have the SHA-512 that is pinned here (got $actual); not using it"

tar -xmzf "$archive" -C "$work" package/libchdb.so
chmod 755 "$work/package/libchdb.so"
rm -f "$verified"
mv "$work/package/libchdb.so" "$library"
fingerprint >"$verified.new"
mv "$verified.new" "$verified"
log "the embedded ClickHouse engine is at $library ($((SECONDS - started)) s)"
