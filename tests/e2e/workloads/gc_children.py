# SPDX-License-Identifier: Apache-2.0
"""N children, made by the method HOW, with TIMES collections each at once. gc_children.py HOW N TIMES."""
import gc
import multiprocessing
import os
import sys
import json

from workload import Collections, listen, tell, warm_up


def collect(times):
    truth = Collections()
    truth.start()
    for i in range(times):
        gc.collect(i % 3)
    truth.stop()
    return {"pid": os.getpid(), "begin": truth.begin, "end": truth.end, "collections": truth.records()}


def child(times, pipe):
    pipe.send(collect(times))
    pipe.recv()  # stay until the parent has seen all


def by_fork(n, times):
    children = []
    for _ in range(n):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            with os.fdopen(writer, "w") as out:
                json.dump(collect(times), out)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as f:
            children.append(json.load(f))
        os.waitpid(pid, 0)
    return children


def by_multiprocessing(method, n, times):
    context = multiprocessing.get_context(method)
    pipes, processes = [], []
    for _ in range(n):
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(times, theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    children = [pipe.recv() for pipe in pipes]
    for pipe, process in zip(pipes, processes):
        pipe.send(None)
        process.join()
    return children


def main():
    how, n, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if not warm_up():
        return
    if how == "fork":
        children = by_fork(n, times)
    else:
        children = by_multiprocessing(how.split("-")[1], n, times)
    tell(children=children)
    listen()


if __name__ == "__main__":
    main()
