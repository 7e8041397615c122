# SPDX-License-Identifier: Apache-2.0
"""A program that imitates Python (workloads/impostor.c), built in variants, with lies on demand."""
import json
import os
import subprocess

import host

SOURCE = os.path.join(host.WORKLOADS, "impostor.c")


def build(folder, *flags, compiler='$(command -v clang-19 || echo cc)', name="impostor"):
    program = os.path.join(folder, name)
    subprocess.run(["sh", "-c", f'{compiler} -std=gnu11 -O1 -pthread "$@" -o {program} {SOURCE}', "sh", *flags], check=True)
    return program


class Impostor:
    def __init__(self, program, *args):
        self.program = program
        self.process = subprocess.Popen([program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        self.read()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def tell(self, words):
        self.process.stdin.write(words + "\n")
        return self.read()

    def kill(self):
        self.process.kill()
        self.process.wait()
