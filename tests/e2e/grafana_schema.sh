#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts Grafana's types of a dashboard and a TypeScript compiler under build/cache/grafana_schema/VERSION, for test_grafana.py.
set -eu
cd "$(dirname "$0")/../.."
versions="10.4.19 11.6.0 13.2.3"
for version in $versions; do
    directory=build/cache/grafana_schema/$version
    [ -e "$directory/done" ] && continue
    command -v npm >/dev/null || deploy/dependencies.sh npm
    mkdir -p "$directory"
    npm install --silent --loglevel=error --no-audit --no-fund --ignore-scripts --no-save --prefix "$directory" "@grafana/schema@$version" typescript@5.9.3
    touch "$directory/done"
done
