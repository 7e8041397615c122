#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks the libraries for a release of a different machine: `deploy/dist/sysroot.sh arm64 DIR`. Debian 12's packages, like those
# of this machine's release; nothing is run or installed.
set -euo pipefail
[ $# = 2 ] || { echo "usage: sysroot.sh ARCHITECTURE DIR" >&2; exit 2; }
[ ! -e "$2/usr/include/isa-l" ] || exit 0  # one of an older version lacks it
rm -rf "$2" "$2.part"
mmdebstrap --quiet --arch="$1" --variant=extract --mode=root --skip=check/qemu --aptopt='Acquire::Check-Valid-Until "false"' \
    --include=libc6-dev,libgcc-12-dev,libbpf-dev,libelf-dev,zlib1g-dev,libcurl4-openssl-dev,libjansson-dev,libmicrohttpd-dev \
    --include=libprotobuf-c-dev,libcapstone-dev,libcap-dev,liblzma-dev,libgnutls28-dev,libisal-dev,uthash-dev bookworm "$2.part" "${MIRROR:-http://deb.debian.org/debian}"
mv "$2.part" "$2"
