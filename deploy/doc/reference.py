#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference of a build into a directory: `deploy/doc/reference.py build/underspan build/doc`.

Man pages underspan(1) and underspan.json(5), a completion for bash, and pages for options, tables and metrics, all from the output of the
program (--help, help, schema): nothing is listed by hand, so nothing becomes outdated."""
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import namedtuple

Option = namedtuple("Option", "letter key arg text default")
Command = namedtuple("Command", "name summary usage about groups")  # groups: {title: [Option]}

HERE = os.path.dirname(os.path.abspath(__file__))


# ---- the program's output ----

class Program:
    def __init__(self, path):
        self.path = os.path.abspath(path)
        # keeps this host's settings out of the pages
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("UNDERSPAN_")} | {"LC_ALL": "C.UTF-8"}

    def run(self, *arguments):
        return subprocess.run([self.path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)

    def say(self, *arguments):
        result = self.run(*arguments)
        if result.returncode:
            sys.exit(f"reference.py: underspan {' '.join(arguments)}: {result.stderr}")
        return result.stdout


def read_option(lines):
    head = re.match(r"  (?:-(\w), )?--([\w.-]+)(?:=(\S+))?(?: +(.*))?$", lines[0])
    text = " ".join([head[4] or "", *(line.strip() for line in lines[1:])]).strip()
    default = re.search(r" \(default: ([^()]*(?:\([^()]*\)[^()]*)*)\)$", text)
    return Option(head[1], head[2], head[3], text[:default.start()] if default else text, default[1] if default else None)


def read_command(program, name, summary):
    usage, about, groups, title, entry = [], [], {}, None, []

    def end_entry():
        if entry:
            groups[title].append(read_option(entry))
            entry.clear()

    for line in program.say(name, "--help").splitlines():
        heading = re.match(r"(\w[\w ]*):$", line)
        if not usage or (not about and line):
            usage.append(line.removeprefix("usage:").strip())
            if not line.startswith((" ", "usage:")):
                about.append(usage.pop())
        elif heading:
            end_entry()
            title = heading[1]
            groups[title] = []
        elif title is None:
            about.append(line)
        elif line.startswith("  -"):
            end_entry()
            entry.append(line)
        elif line.startswith("   ") and entry:
            entry.append(line)
        else:
            end_entry()
    end_entry()
    while about and not about[-1]:
        about.pop()
    groups.pop("Configuration", None)
    return Command(name, summary, usage, about, groups)


def read_commands(program):
    text = program.say("help").split("\n\n")[2]
    return [read_command(program, *line.split(None, 1)) for line in text.splitlines()]


def keys_of_files(program, options):
    """The options allowed in a file; some are flags only."""
    keys = []
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        for key in options:
            file.seek(0)
            file.truncate()
            file.write(json.dumps({key: "1"}))
            file.flush()
            if "as a flag only" not in program.run("run", "--check", "--stdout", "-c", file.name).stderr:
                keys.append(key)
    return keys


def variable(key):
    return "UNDERSPAN_" + key.upper().replace(".", "_")


# ---- man pages ----

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


class Man:
    def __init__(self, name, section, version, date, summary):
        self.lines = [f'.TH {name.upper()} {section} "{date}" "underspan {version}"', ".SH NAME", f"{name} \\- {roff(summary)}"]

    def section(self, title):
        self.lines.append(f'.SH "{title}"')

    def part(self, title):
        self.lines.append(f'.SS "{title}"')

    def text(self, text):
        """Paragraphs; indented text is kept."""
        literal = False
        for line in text.splitlines():
            if line.startswith("  ") != literal:
                literal = not literal
                self.lines += [".nf"] if literal else [".fi"]
            self.lines.append(roff(line) if line.strip() else ".PP" if not literal else "")
        if literal:
            self.lines.append(".fi")

    def entry(self, head, text):
        self.lines += [".TP", head, roff(text)]

    def write(self, path):
        with open(path, "w") as file:
            file.write("\n".join(self.lines) + "\n")


def option_head(o):
    letter = f"\\fB\\-{o.letter}\\fR, " if o.letter else ""
    return f"{letter}\\fB\\-\\-{roff(o.key)}\\fR" + (f"=\\fI{roff(o.arg)}\\fR" if o.arg else "")


def with_default(o):
    return f"{o.text} (default: {o.default})" if o.default else o.text


def write_man1(out, program, commands, version, date):
    man = Man("underspan", 1, version, date, "the latency under OpenTelemetry spans, seen from the kernel")
    man.section("SYNOPSIS")
    for c in commands:
        for line in c.usage:
            man.lines += [roff(line), ".br"]
    man.section("DESCRIPTION")
    man.text("One agent per host sees from the kernel where the time of a Python service goes that spans do not show, writes rows\n"
             "to ClickHouse, and answers questions about them.")
    man.section("COMMANDS")
    shared = {}
    for c in commands:
        man.part(f"{c.name}: {c.summary}")
        man.text("\n".join(c.about))
        for title, options in c.groups.items():
            for o in options:
                if title == "ClickHouse":
                    shared[o.key] = o
                elif "." not in o.key:
                    man.entry(option_head(o), with_default(o))
    man.section("OPTIONS FOR CLICKHOUSE")
    for o in shared.values():
        man.entry(option_head(o), with_default(o))
    man.section("CONFIGURATION")
    man.entry(option_head(Option("c", "config", "FILE", None, None)), "read options from this file; none: from no file")
    man.lines.append(".PP")
    man.text(program.say("help", "config"))
    man.text("\nOptions with a dot in their name are in underspan.json(5).")
    man.section("UNITS")
    man.text(program.say("help", "units"))
    man.section("EXIT STATUS")
    for status, what in ("0", "done"), ("1", "failed, or nothing was found; the message says why"), ("2", "wrong usage or configuration"):
        man.entry(status, what)
    man.section("FILES")
    man.entry("/etc/underspan/underspan.json", "the configuration, see underspan.json(5)")
    man.entry("/etc/underspan/clickhouse\\-password", "the password for the server of that file")
    man.section("SEE ALSO")
    man.lines.append(".BR underspan.json (5)")
    man.write(f"{out}/underspan.1")


def write_man5(out, keyed, version, date):
    man = Man("underspan.json", 5, version, date, "configuration of underspan")
    man.section("DESCRIPTION")
    man.text("A JSON object with the keys below, for all commands of underspan(1). A key with a dot may also be written as an object in\n"
             "an object: { \"spool\": { \"max_bytes\": \"1GiB\" } }. Durations and sizes are numbers, or strings with a unit: \"250ms\", \"10s\",\n"
             "\"8MiB\". Lists are arrays of strings, or one string with commas.")
    man.section("KEYS")
    for title, entries in keyed.items():
        man.part(title)
        for o, commands in entries:
            man.entry(f"\\fB{roff(o.key)}\\fR", f"{with_default(o)}. Environment: {variable(o.key)}. Commands: {', '.join(commands)}.")
    man.section("SEE ALSO")
    man.lines.append(".BR underspan (1)")
    man.write(f"{out}/underspan.json.5")


# ---- further pages ----

def write_completion(out, commands, topics):
    lines = ["# bash completion for underspan; made by deploy/doc/reference.py", "_underspan()", "{",
             "    local cur=${COMP_WORDS[COMP_CWORD]} words=", "    COMPREPLY=()",
             "    if [ \"$COMP_CWORD\" = 1 ]; then",
             f"        words='{' '.join([c.name for c in commands] + ['help', 'version'])}'",
             "    elif [[ ${COMP_WORDS[COMP_CWORD - 1]} = @(-c|=) || $cur = = ]]; then # a value", "        [ \"$cur\" != = ] || cur=",
             "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")", "        return",
             "    else", "        case ${COMP_WORDS[1]} in"]
    for c in commands:
        options = [f"--{o.key}{'=' if o.arg else ''}" for group in c.groups.values() for o in group]
        lines.append(f"            {c.name}) words='{' '.join(options + ['--config=', '--help'])}' ;;")
    lines += [f"            help) words='{' '.join([c.name for c in commands] + topics)}' ;;", "        esac", "    fi",
              "    [ -z \"$words\" ] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")",
              "    # a value follows an option that ends in =; all other words are files",
              "    [ ${#COMPREPLY[@]} != 1 ] || [ \"${COMPREPLY[0]%=}\" = \"${COMPREPLY[0]}\" ] || compopt -o nospace",
              "    [ ${#COMPREPLY[@]} != 0 ] || compopt -o default", "}", "complete -F _underspan underspan"]
    with open(f"{out}/underspan.bash", "w") as file:
        file.write("\n".join(lines) + "\n")


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def write_options(out, keyed, version):
    lines = [f"# Options of underspan {version}", "",
             "Each key of the file is the flag `--KEY` and the variable. `underspan help config` explains the precedence.", ""]
    for title, entries in keyed.items():
        lines += [f"## {title}", "", "| key | default | what | variable | commands |", "|---|---|---|---|---|"]
        for o, commands in entries:
            lines.append(f"| `{o.key}` | {cell(o.default or '')} | {cell(o.text)} | `{variable(o.key)}` | {', '.join(commands)} |")
        lines.append("")
    with open(f"{out}/options.md", "w") as file:
        file.write("\n".join(lines))


def write_tables(out, program, version):
    lines = [f"# Tables of underspan {version}", "", "From `underspan schema`; in ClickHouse the comments are in `system.columns`.", ""]
    for comment, name, body in re.findall(r"((?:^--[^\n]*\n)*)^CREATE TABLE IF NOT EXISTS (\w+)\n\(\n(.*?)^\)", program.say("schema"), re.M | re.S):
        lines += [f"## {name}", "", *(re.sub(r"^-- ?", "", line).replace("<", "&lt;") for line in comment.splitlines()), "",
                  "| column | type | what |", "|---|---|---|"]
        for line in body.splitlines():
            column = re.match(r"    ([a-z_]+) (.*?)(?: (?:DEFAULT|ALIAS|CODEC|COMMENT)\b.*)?,?$", line)
            if column:
                what = re.search(r" COMMENT '([^']*)'", line)
                lines.append(f"| `{column[1]}` | `{column[2]}` | {cell(what[1]) if what else ''} |")
        lines.append("")
    with open(f"{out}/tables.md", "w") as file:
        file.write("\n".join(lines))


def write_metrics(out, version):
    """The table beside the alert rules is checked against a running agent by the end-to-end tests."""
    with open(f"{HERE}/../prometheus/README.md") as file:
        table = file.read().split("\n## Metrics\n")[1]
    with open(f"{out}/metrics.md", "w") as file:
        file.write(f"# Metrics of underspan {version}\n" + re.sub(r" \(`UNDERSPAN_WRITE_TABLE=1` writes it\)", "", table))


def main(path, out):
    program = Program(path)
    version = program.say("version").split()[1]
    date = subprocess.run(["date", "-u", "+%Y-%m-%d", "-d", f"@{os.environ.get('SOURCE_DATE_EPOCH') or 0}"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()
    commands = read_commands(program)
    topics = re.findall(r"^  (\w+) ", program.say("help").split("\n\n")[3], re.M)[1:-1]
    users, first = {}, {}
    for c in commands:
        for title, options in c.groups.items():
            for o in options:
                users.setdefault(o.key, []).append(c.name)
                first.setdefault(o.key, (title if title != "Options" else f"Command {c.name}", o))
    keyed = {}
    for key in keys_of_files(program, list(first)):
        title, o = first[key]
        keyed.setdefault(title, []).append((o, users[key]))
    os.makedirs(out, exist_ok=True)
    write_man1(out, program, commands, version, date)
    write_man5(out, keyed, version, date)
    write_completion(out, commands, topics)
    write_options(out, keyed, version)
    write_tables(out, program, version)
    write_metrics(out, version)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: reference.py PROGRAM DIRECTORY")
    main(sys.argv[1], sys.argv[2])
