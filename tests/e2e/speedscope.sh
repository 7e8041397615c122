#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts speedscope, the flame graph viewer, under build/cache/speedscope, for test_offcpu_formats.py.
set -eu
cd "$(dirname "$0")/../.."
version=1.25.0
directory=build/cache/speedscope
[ "$(cat "$directory/version" 2>/dev/null)" = "$version" ] && exit 0
command -v npm >/dev/null || deploy/dependencies.sh npm
mkdir -p "$directory"
npm install --silent --loglevel=error --no-audit --no-fund --ignore-scripts --no-save --prefix "$directory" "speedscope@$version"
echo "$version" >"$directory/version"
