#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the image of Dockerfile without Docker: `image.sh [amd64|arm64]`, from the .deb in build/dist, as
# build/dist/underspan-VERSION-ARCH.oci.tar (`skopeo copy oci-archive:FILE docker://REGISTRY/underspan:VERSION`, `podman load`,
# `ctr image import`), with its digest in underspan-VERSION-ARCH.digest. The same .deb and Debian packages give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=${1:-$(dpkg --print-architecture)} dockerfile=deploy/docker/Dockerfile
umask 022

fail() { printf 'image: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root: mmdebstrap makes a root file system"
for tool in mmdebstrap dpkg-deb python3; do command -v $tool >/dev/null || fail "$tool is missing: run deploy/dependencies.sh image"; done
deb=$(find build/dist -maxdepth 1 -name "underspan_*_$arch.deb" 2>/dev/null)
[ -f "$deb" ] || fail "no package for $arch in build/dist: run 'make dist' (arm64: 'make dist-arm64')"
version=$(dpkg-deb -f "$deb" Version) out=build/dist/underspan-$(dpkg-deb -f "$deb" Version)-$arch
suite=$(sed -n 's/^FROM debian:\([a-z]*\)-slim$/\1/p' $dockerfile)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# of alternatives the last, Debian 12's name
depends=$(dpkg-deb -f "$deb" Depends | sed 's/([^)]*)//g; s/[^,|]*|//g; s/ //g')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$deb" "$work/underspan.deb"
# what debian:bookworm-slim leaves out, and dpkg is told to leave out later
mmdebstrap --quiet --arch="$arch" --variant=minbase --mode=root --include="ca-certificates,libisal2,$depends" \
    --aptopt='Apt::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook="cp '$work/underspan.deb' \"\$1/tmp/\"" \
    --customize-hook='chroot "$1" dpkg --install /tmp/underspan.deb >/dev/null && rm "$1/tmp/underspan.deb"' \
    --customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname" "$1/var/log/dpkg.log" "$1/var/log/alternatives.log"' --customize-hook='rm -rf "$1"/var/log/apt' \
    --skip=output/dev "$suite" "$work/layer.tar" "${MIRROR:-http://deb.debian.org/debian}"
deploy/docker/oci.py "$work/layer.tar" $dockerfile "$arch" "$version" "$out.oci.tar" >"$out.digest"
deploy/dist/checksums.sh build/dist
printf 'image: %s, %s MB, %s\n' "$out.oci.tar" "$(du -m "$out.oci.tar" | cut -f1)" "$(cat "$out.digest")"
