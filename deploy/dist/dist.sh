#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the release files in build/dist: `deploy/dist/dist.sh [MACHINE SYSROOT]`. A tarball, a .deb, an .rpm, the wheel and
# their checksums. The same commit gives the same bytes (SOURCE_DATE_EPOCH, by default the commit's time; no path, user or host
# of this machine gets in). VERSION is that of the git tag (v1.2.3; commits after it: 1.2.3+N.gCOMMIT), without one 0.0.0+git....
set -euo pipefail
cd "$(dirname "$0")/../.."
machine=${1:-$(uname -m)} sysroot=${2:-}
out=$PWD/build/dist work=$PWD/build/dist.work.$machine
umask 022
export LC_ALL=C TZ=UTC

fail() { printf 'dist: %s\n' "$*" >&2; exit 1; }

version_of_git() {
    local tag
    if tag=$(git describe --tags --long --match 'v[0-9]*' 2>/dev/null); then # v1.2.3-0-gabcdef
        tag=${tag#v}
        case $tag in *-0-g*) echo "${tag%-0-g*}" ;; *) echo "$tag" | sed 's/-\([0-9]*\)-\(g[0-9a-f]*\)$/+\1.\2/' ;; esac
    else
        echo "0.0.0+git$(git rev-list --count HEAD 2>/dev/null || echo 0).g$(git rev-parse --short=8 HEAD 2>/dev/null || echo unknown)"
    fi
}

version=${VERSION:-$(version_of_git)}
[[ $version =~ ^[0-9][0-9A-Za-z.+~]*$ ]] || fail "'$version' is no version for packages: use digits, letters, dots, + and ~"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
case $machine in
    x86_64) deb_arch=amd64 ;;
    aarch64) deb_arch=arm64 ;;
    *) fail "no package for $machine" ;;
esac
for tool in dpkg-deb rpmbuild xz; do command -v $tool >/dev/null || fail "$tool is missing: run deploy/dependencies.sh build dist"; done

# ---- the program ----

build() {
    rm -rf "build/release-$machine"
    make -j"$(nproc)" RELEASE=1 VERSION="$version" MACHINE="$machine" ${sysroot:+SYSROOT="$sysroot"} all
    deploy/dist/check-binary.sh "build/release-$machine/underspan" || fail "the program would not run everywhere"
    # the pages are equal for all machines; written by this machine's program
    if [ "$machine" = "$(uname -m)" ]; then
        deploy/doc/reference.py "build/release-$machine/underspan" "$work/doc"
    else
        make -j"$(nproc)" RELEASE=1 VERSION="$version" all
        deploy/doc/reference.py "build/release-$(uname -m)/underspan" "$work/doc"
    fi
}

# ---- the tree, below $1; installed below $2 ----

tree() {
    local share=$1/share doc=$1/share/doc/underspan
    install -Dm755 "build/release-$machine/underspan" "$1/bin/underspan"
    install -d "$1/lib/systemd/system" "$share/underspan" "$doc/examples"
    sed "s|/usr/local/bin/|$2/bin/|; s|^After=network-online.target|ConditionPathExists=/etc/underspan/underspan.json\n&|" \
        deploy/systemd/underspan.service >"$1/lib/systemd/system/underspan.service"
    install -Dm644 "$work/doc/underspan.bash" "$share/bash-completion/completions/underspan"
    install -d "$share/man/man1" "$share/man/man5"
    gzip -9nc "$work/doc/underspan.1" >"$share/man/man1/underspan.1.gz"
    gzip -9nc "$work/doc/underspan.json.5" >"$share/man/man5/underspan.json.5.gz"
    install -m644 "$work/doc"/{options,tables,metrics}.md deploy/CHANGELOG.md deploy/doc/guide.md deploy/dist/copyright "$doc/"
    install -m644 deploy/underspan.json "$doc/examples/"
    install -m644 LICENSE "$doc/LICENSE"
    # without the tests' expanded lines: the files in the program
    (cd "build/release-$machine" && find sql -name '*.sql' -exec install -Dm644 {} "$share/underspan/{}" \;)
    cp -r deploy/k8s deploy/prometheus deploy/grafana "$share/underspan/"
    install -m755 deploy/libchdb.sh "$share/underspan/"
    install -m644 "$work"/wheel/*.whl "$share/underspan/"
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -type f ! -name underspan ! -name '*.sh' -exec chmod 644 {} +
    find "$1" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
}

tarball() {
    local name=underspan-$version-$machine
    tree "$work/$name" /usr/local
    tar -C "$work" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
}

package_root() {
    tree "$work/root/usr" /usr
    install -d -m755 "$work/root/etc/underspan"
    touch -hd "@$SOURCE_DATE_EPOCH" "$work/root" "$work/root/etc" "$work/root/etc/underspan"
}

deb() {
    local root=$work/deb script
    cp -a "$work/root" "$root"
    install -d "$root/DEBIAN"
    for script in postinst prerm postrm; do install -m755 "deploy/dist/deb.$script" "$root/DEBIAN/$script"; done
    sed "s/@VERSION@/$version/; s/@ARCH@/$deb_arch/; s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f1)/" deploy/dist/deb.control >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f | sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb -Zxz -z9 --root-owner-group --build "$root" "$out/underspan_${version}_$deb_arch.deb" >/dev/null
}

rpm() {
    # the requirements of the libraries are found by rpmbuild, in the program
    rpmbuild -bb --quiet --target "$machine-linux" --define "_topdir $work/rpm" --define "_rpmdir $work/rpm" --define "version_ $version" \
        --define "root_ $work/root" --define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" \
        --define "clamp_mtime_to_source_date_epoch 1" --define "_build_id_links none" --define "debug_package %{nil}" \
        --define "__os_install_post %{nil}" --define "_binary_payload w9.xzdio" --define "_dbpath $work/rpmdb" deploy/dist/rpm.spec >"$work/rpm.log" 2>&1 ||
        { cat "$work/rpm.log" >&2; fail "rpmbuild"; }
    mv "$work/rpm/$machine/underspan-$version-1.$machine.rpm" "$out/"
}

rm -rf "$work"
mkdir -p "$work/wheel" "$out"
rm -f "$out"/underspan[-_]*"$machine"* "$out"/underspan_*"$deb_arch"* "$out"/underspan-*-"$deb_arch".{oci.tar,digest}
build
deploy/otel/wheel.sh "$work/wheel" >/dev/null
install -m644 "$work"/wheel/*.whl "$out/"
tarball
package_root
deb
rpm
deploy/dist/checksums.sh "$out"
cat "$out/SHA256SUMS"
rm -rf "$work"
