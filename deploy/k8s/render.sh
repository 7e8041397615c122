#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes base/daemonset.yaml, the chart with its default values: `deploy/k8s/render.sh`; needs helm (HELM=PROGRAM).
set -eu
cd "$(dirname "$0")"
rendered=$(${HELM:-helm} template underspan chart --namespace underspan --set namespace.create=true)
{
    cat <<'HEAD'
# SPDX-License-Identifier: Apache-2.0
# underspan on every node. Made from ../chart by ../render.sh: changes belong there.
# An upgrade applies only this directory: kubectl apply -k deploy/k8s/base
# The first time: set the image (example/), create the tables (`underspan schema --apply`), apply this directory, then edit the files of once/
# and kubectl create -f deploy/k8s/once/ (the server's address, the password): the pods start when both exist.
HEAD
    printf '%s\n' "$rendered" | sed '1{/^---$/d}; /^# Source: /d'
} >"${1:-base/daemonset.yaml}"
