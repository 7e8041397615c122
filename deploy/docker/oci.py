#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""oci.py LAYER DOCKERFILE ARCH VERSION OUT: packs a root file system (a tar) as an image in the OCI layout, with the Dockerfile's
ENTRYPOINT and CMD. Prints the digest of the manifest, by which a registry and Kubernetes know the image."""
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
MANIFEST, CONFIG, LAYER = (f"application/vnd.oci.image.{kind}" for kind in ("manifest.v1+json", "config.v1+json", "layer.v1.tar+gzip"))


def compact(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def instruction(dockerfile, name):
    """Its JSON form; the last one counts, as for Docker."""
    with open(dockerfile) as f:
        return json.loads(re.findall(rf"^{name} (\[.*\])$", f.read(), re.MULTILINE)[-1])


def pack_layer(path):
    """The packed layer, and the hash of it unpacked."""
    unpacked, packed = hashlib.sha256(), io.BytesIO()
    with open(path, "rb") as layer, gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0, filename="") as out:
        while block := layer.read(1 << 20):
            unpacked.update(block)
            out.write(block)
    return packed.getvalue(), unpacked.hexdigest()


def main():
    layer_path, dockerfile, arch, version, out = sys.argv[1:]
    layer, diff_id = pack_layer(layer_path)
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"org.opencontainers.image.title": "underspan", "org.opencontainers.image.version": version,
              "org.opencontainers.image.licenses": "Apache-2.0"}
    config = compact({
        "architecture": arch, "os": "linux", "created": created,
        "config": {"Entrypoint": instruction(dockerfile, "ENTRYPOINT"), "Cmd": instruction(dockerfile, "CMD"), "Labels": labels,
                   "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}"]},
        "history": [{"created": created, "created_by": "deploy/docker/image.sh"}]})
    blobs = {}

    def blob(kind, content):
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    manifest = blob(MANIFEST, compact({"schemaVersion": 2, "mediaType": MANIFEST, "config": blob(CONFIG, config),
                                       "layers": [blob(LAYER, layer)], "annotations": labels}))
    tag = re.sub(r"[^A-Za-z0-9._-]", "-", version)  # a version may have + and ~, a tag not
    files = {"oci-layout": compact({"imageLayoutVersion": "1.0.0"}),
             "index.json": compact({"schemaVersion": 2, "manifests": [
                 {**manifest, "platform": {"architecture": arch, "os": "linux"},
                  "annotations": {"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": f"docker.io/library/underspan:{tag}"}}]}),
             **blobs}
    with open(out + ".part", "wb") as f, tarfile.open(fileobj=f, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), EPOCH, 0o644
            tar.addfile(entry, io.BytesIO(content))
    shutil.move(out + ".part", out)
    print(manifest["digest"])


main()
