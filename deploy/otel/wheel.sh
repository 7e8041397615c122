#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel underspan-otel into DIR and prints its path: `deploy/otel/wheel.sh DIR`. The same source gives the same
# bytes (SOURCE_DATE_EPOCH, by default the last commit's time). setuptools is Debian's own; nothing is downloaded.
set -euo pipefail
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# setuptools writes beside the source: it gets a copy
install -m644 pyproject.toml README.md underspan_otel.py "$work"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y underspan_otel.py)}
umask 022
(cd "$work" && /usr/bin/python3 - "$out" >log 2>&1 <<'EOF') || { cat "$work/log" >&2; exit 1; }
import sys
from setuptools import build_meta
with open("name", "w") as file:
    file.write(build_meta.build_wheel(sys.argv[1]))
EOF
echo "$out/$(cat "$work/name")"
