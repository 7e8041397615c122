#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks the OpenTelemetry SDK for Python, its OTLP/HTTP exporter and its Django instrumentation into build/cache/otel and prints
# the directory for PYTHONPATH. Stable Debian does not package them: they come from unstable's .debs (pure
# Python), from the mirror this machine's apt uses, checked by apt's signatures. The host is not touched.
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=build/cache/otel
suite=sid
from_suite=(python3-opentelemetry-{api,sdk,semantic-conventions,util-http}
    python3-opentelemetry-instrumentation{,-wsgi,-django} python3-typing-extensions
    python3-opentelemetry-{proto,exporter-otlp-common,exporter-otlp-proto-common,exporter-otlp-proto-http,exporter-http-transport}
    python3-googleapis-common-protos)
# wrapt and protobuf are compiled: they must fit this machine's Python
from_host=(python3-wrapt python3-packaging python3-protobuf python3-requests python3-urllib3 python3-idna python3-certifi python3-chardet)

path=$PWD/$dir/usr/lib/python3/dist-packages
recipe=$(sha256sum < "$0")
if [ "$(cat $dir/recipe 2>/dev/null)" = "$recipe" ]; then
    echo "$path"
    exit
fi

fail() { printf 'underspan: %s\n' "$*" >&2; exit 1; }

command -v apt-get >/dev/null || fail "the demo's OpenTelemetry packages come from apt, and there is no apt-get here"
. /etc/os-release
codename=${VERSION_CODENAME:-$suite}
mirror=$(apt-get update --print-uris | sed -n "s|^'\(.*\)dists/$codename/InRelease'.*|\1|p" | sed 1q)
[ "${ID:-}" = debian ] && [ -n "$mirror" ] ||
    fail "no Debian mirror for '$codename' in apt's sources; the demo needs one for its OpenTelemetry packages"

mkdir -p build/cache
work=$(mktemp -d "$PWD/build/cache/otel.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work"/apt/{lists,archives}/partial "$work/tree"

for s in $(printf '%s\n' "$codename" $suite | sort -u); do
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$mirror" "$s"
    printf 'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n'
done > "$work/apt/debian.sources"
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/apt/debian.sources" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$work/apt/lists" -o "Dir::Cache=$work/apt" -o Acquire::Languages=none
    -o "APT::Sandbox::User=$(id -un)" -o "Acquire::Retries=3")
"${apt[@]}" update || fail "apt could not read the package lists of '$suite'; check the network, then run this again"
(cd "$work" && "${apt[@]}" download "${from_suite[@]/%//$suite}" "${from_host[@]/%//$codename}" >&2) ||
    fail "apt could not download the OpenTelemetry packages from '$suite'"
for deb in "$work"/*.deb; do
    dpkg-deb -x "$deb" "$work/tree"
done
PYTHONPATH="$work/tree/usr/lib/python3/dist-packages" /usr/bin/python3 -c '
import opentelemetry.sdk.trace, opentelemetry.instrumentation.django, opentelemetry.exporter.otlp.proto.http.trace_exporter' ||
    fail "'$suite' now has OpenTelemetry packages that do not run on $(/usr/bin/python3 --version)"

echo "$recipe" > "$work/tree/recipe"
chmod 755 "$work/tree"
rm -rf $dir
mv -T "$work/tree" $dir
echo "$path"
