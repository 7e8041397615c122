#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that a release starts on every promised distribution: glibc 2.34 and newer, only the libraries below, no path
# of the build machine. `deploy/dist/check-binary.sh PROGRAM`
set -euo pipefail
program=$1 newest=2.34
bad=0

needed=$(objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }' | sort | xargs)
for library in $needed; do
    case $library in
        libc.so.6|libm.so.6|libz.so.1|libcurl.so.4|libgnutls.so.30|ld-linux-*) ;;
        *) echo "$program needs $library" >&2; bad=1 ;;
    esac
done
glibc=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
if [ "$(printf '%s\n' "$glibc" $newest | sort -V | tail -n 1)" != $newest ]; then
    echo "$program needs glibc $glibc, not $newest: $(objdump -T "$program" | grep "GLIBC_$glibc" | awk '{ print $NF }' | xargs)" >&2
    bad=1
fi
if objdump -T "$program" | grep -q 'CURL_'; then echo "$program needs the versions of Debian's libcurl" >&2; bad=1; fi
if grep -qaF "$PWD" "$program"; then echo "$program has the path $PWD in it" >&2; bad=1; fi
[ $bad = 0 ] && echo "dist: glibc $glibc; $needed"
exit $bad
