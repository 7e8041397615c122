# SPDX-License-Identifier: Apache-2.0
"""Grafana's own types of a dashboard (the npm package @grafana/schema), applied to JSON by the TypeScript compiler: members that Grafana
does not define, values of another type and missing members are errors, in the dashboard, its variables and panels, and in the options
and columns of each kind of panel."""
import fcntl
import json
import pathlib
import re
import subprocess

from store_fixture import ROOT

CACHE = pathlib.Path(ROOT) / "build/cache/grafana_schema"
KINDS = {"table": "Table", "timeseries": "TimeSeries"}


VERSIONS = re.search(r'versions="(.*)"', (pathlib.Path(ROOT) / "tests/e2e/grafana_schema.sh").read_text())[1].split()


def types_of(modules):
    """The package's type files, enums as the values that JSON has. Other tests may do the same now."""
    package = modules / "@grafana/schema/dist"
    root = next(p for p in (package / "types", package / "esm") if (p / "index.d.ts").exists())

    def values(found):
        return f"{found[1] or ''}type {found[2]} = {' | '.join(re.findall(r'= (.+?),?$', found[3], re.M))};\n"
    for path in package.rglob("*.d.*ts"):
        text = path.read_text()
        plain = re.sub(r"^(export )?declare enum (\w+) \{\n(.*?)\n\}\n", values, text, flags=re.S | re.M)
        if plain != text:
            path.write_text(plain)
    return root


def check_text(boards, root):
    """TypeScript that compiles if the dashboards are right."""
    at = {kind: next(root.glob(f"raw/composable/{kind}/panelcfg/x/*.d.ts")) for kind in KINDS}
    lines = [f"import type {{ Dashboard }} from {json.dumps(str(root / 'index'))};"]
    lines += [f"import type * as {name} from {json.dumps(str(at[kind]).removesuffix('.d.ts'))};" for kind, name in KINDS.items()]
    for number, board in enumerate(boards.values()):
        lines.append(f"export const board{number}: Dashboard = {json.dumps(board, indent=1)};")
        for panel in board["panels"]:
            what, name = f"board{number}_{panel['id']}", KINDS[panel["type"]]
            fields = panel["fieldConfig"]["defaults"].get("custom", {})
            lines.append(f"export const options_{what}: Omit<{name}.Options, 'frameIndex'> = {json.dumps(panel['options'])};")
            lines.append(f"export const fields_{what}: Partial<{name}.FieldConfig> & {{ filterable?: boolean }} = {json.dumps(fields)};")
    return "\n".join(lines)


def complaints(boards, version, directory):
    """Lines of the compiler; none: the dashboards are as Grafana defines them."""
    modules = CACHE / version / "node_modules"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([pathlib.Path(ROOT) / "tests/e2e/grafana_schema.sh"], check=True, timeout=300)
        root = types_of(modules)
    source = directory / "check.ts"
    source.write_text(check_text(boards, root))
    done = subprocess.run(["node", modules / "typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "bundler", "--module", "esnext",
                           "--typeRoots", modules / "none", source], capture_output=True, text=True, timeout=300, cwd=modules.parent)
    return [line for line in done.stdout.splitlines() if line.strip()]
