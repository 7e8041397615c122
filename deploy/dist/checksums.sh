#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes SHA256SUMS of the files in a directory: `checksums.sh DIR`.
set -eu
cd "$1"
find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' | sort | xargs -d '\n' sha256sum >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
