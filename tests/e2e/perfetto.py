# SPDX-License-Identifier: Apache-2.0
"""Reads a trace of Perfetto: protoc decodes it with the definition in schemas/; slices are made from pairs of events as trace_processor
does: by time, in the order of the file where times are equal, one stack for each track."""
import json
import re
import subprocess
from dataclasses import dataclass, field

from store_fixture import ROOT

SCHEMAS = ROOT / "tests/e2e/schemas"


@dataclass
class Slice:
    process: str
    track: str
    name: str
    begin: int
    end: int
    depth: int
    notes: dict = field(default_factory=dict)
    instant: bool = False

    @property
    def ns(self):
        return self.end - self.begin


def parsed(lines):
    """The text format: {name: [values]}; a message is a dictionary."""
    message = {}
    for line in lines:
        line = line.strip()
        if line == "}":
            return message
        if line.endswith("{"):
            message.setdefault(line[:-2], []).append(parsed(lines))
        else:
            name, value = line.split(": ", 1)
            assert not name.isdigit(), f"a member that Perfetto does not define: {line}"
            message.setdefault(name, []).append(text(value) if value[0] == '"' else value)
    return message


def text(quoted):
    """protoc escapes bytes other than ASCII in octal."""
    raw = re.sub(rb"\\([0-7]{3}|.)", lambda m: bytes([int(m[1], 8)]) if len(m[1]) == 3 else {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(m[1], m[1]),
                 quoted[1:-1].encode())
    return raw.decode()


class Trace:
    """`slices`: of all tracks; `processes`: {pid: name}; `threads`: {(pid, tid): name}; `clock_ns`: (trace's, wall)."""

    def __init__(self, data):
        decoded = subprocess.run(["protoc", f"--proto_path={SCHEMAS}", "--decode=perfetto.protos.Trace", str(SCHEMAS / "perfetto_trace.proto")],
                                 input=data, capture_output=True, check=True).stdout.decode()
        packets = parsed(iter(decoded.splitlines()))["packet"]
        self.tracks, self.processes, self.threads, self.slices = {}, {}, {}, []
        for [track] in (p["track_descriptor"] for p in packets if "track_descriptor" in p):
            self.add_track(track)
        [[clocks]] = [p["clock_snapshot"] for p in packets if "clock_snapshot" in p]
        self.clock_ns = {int(c["clock_id"][0]): int(c["timestamp"][0]) for c in clocks["clocks"]}
        assert {p["trusted_packet_sequence_id"][0] for p in packets} == {"1"}
        self.add_events([(int(p["timestamp"][0]), p["track_event"][0]) for p in packets if "track_event" in p])

    def add_track(self, track):
        uuid, parent = int(track["uuid"][0]), int(track.get("parent_uuid", ["0"])[0])
        assert uuid not in self.tracks and (not parent or parent in self.tracks), track
        above = self.tracks.get(parent, ("", ""))
        if "process" in track:
            pid, name = int(track["process"][0]["pid"][0]), track["process"][0]["process_name"][0]
            assert pid not in self.processes
            self.processes[pid] = name
            self.tracks[uuid] = (name, "")
        elif "thread" in track:
            thread = track["thread"][0]
            key = int(thread["pid"][0]), int(thread["tid"][0])
            assert key not in self.threads and self.processes[key[0]] == above[0]
            self.threads[key] = thread["thread_name"][0]
            self.tracks[uuid] = (above[0], self.threads[key])
        else:
            self.tracks[uuid] = (above[0], track["name"][0])

    def add_events(self, events):
        stacks = {uuid: [] for uuid in self.tracks}
        for at, event in sorted(events, key=lambda e: e[0]):
            stack = stacks[int(event["track_uuid"][0])]
            if event["type"][0] == "TYPE_SLICE_END":
                stack.pop().end = at
                continue
            kind = event["type"][0]
            assert kind in ("TYPE_SLICE_BEGIN", "TYPE_INSTANT")
            notes = {n["name"][0]: n["string_value"][0] if "string_value" in n else float((n.get("uint_value") or n["double_value"])[0])
                     for n in event.get("debug_annotations", [])}
            self.slices.append(Slice(*self.tracks[int(event["track_uuid"][0])], event["name"][0], at, at, len(stack), notes, kind == "TYPE_INSTANT"))
            if kind == "TYPE_SLICE_BEGIN":
                stack.append(self.slices[-1])
        assert not any(stacks.values())

    def of(self, track, process=None):
        return [s for s in self.slices if s.track == track and process in (None, s.process)]
