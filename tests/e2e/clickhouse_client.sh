#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts the stock ClickHouse client for Node.js under build/cache/node_clickhouse, for test_store.py.
set -eu
cd "$(dirname "$0")/../.."
version=1.23.1
directory=build/cache/node_clickhouse
[ "$(cat "$directory/version" 2>/dev/null)" = "$version" ] && exit 0
command -v npm >/dev/null || deploy/dependencies.sh npm
mkdir -p "$directory"
npm install --silent --loglevel=error --no-audit --no-fund --ignore-scripts --no-save \
    --prefix "$directory" "@clickhouse/client@$version"
echo "$version" >"$directory/version"
