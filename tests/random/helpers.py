# SPDX-License-Identifier: Apache-2.0
"""Threads that do what a step waits for."""
import os
import queue
import threading


class Helper:
    """A thread for what a step waits for. It exists before the step, as the start of a thread is a wait of its own."""
    idle, owner = [], os.getpid()

    def __init__(self):
        self.tasks = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="helper").start()

    def _run(self):
        while True:
            task, done = self.tasks.get()
            try:
                task()
            finally:
                done.set()

    def do(self, task):
        """An event that is set afterwards."""
        done = threading.Event()
        self.tasks.put((task, done))
        return done

    @classmethod
    def prepare(cls, n=6):
        cls.idle = [cls() for _ in range(n)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.idle.append(self)


def helper():
    if Helper.owner != os.getpid():  # a fork has none of its parent's threads
        Helper.owner, Helper.idle = os.getpid(), []
    try:
        return Helper.idle.pop()
    except IndexError:
        return Helper()
