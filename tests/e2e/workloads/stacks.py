# SPDX-License-Identifier: Apache-2.0
"""Collections at all kinds of places in Python code; reports the stack at each, taken by a callback of the same
collection: for each frame, innermost first, the file, the function and the line, as traceback would have them."""
import asyncio
import contextlib
import functools
import gc
import os
import re
import sys
import threading
import time

from workload import frames, listen, now, tell, warm_up

truth = []
begun = {}


def callback(phase, info):
    tid = threading.get_native_id()
    if phase == "start":
        begun[tid] = now()
    else:
        truth.append({"tid": tid, "begin": begun[tid], "end": now(), "scene": getattr(local, "scene", ""),
                      "stack": frames(sys._getframe(1))})


local = threading.local()


def collect():
    gc.collect(0)


def recursion(n=30):
    if n:
        recursion(n - 1)
    else:
        collect()


def deep(n=300):
    return deep(n - 1) if n else gc.collect(0)


def generator():
    def inner():
        yield 1
        collect()
        yield 2

    def outer():
        yield from inner()

    list(outer())
    sum(x for x in outer())


def comprehension():
    [collect() for _ in range(2)]
    {k: collect() for k in range(2)}
    [y for y in (
        gc.collect(0) for _ in
        range(2))]


def calls_through_c():
    sorted([2, 1], key=lambda x: collect() or x)
    list(map(lambda x: gc.collect(0), [1]))
    re.sub("a", lambda m: collect() or "", "aa")
    functools.reduce(lambda a, b: collect() or b, [1, 2])
    functools.partial(collect)()

    class Outer:
        class Inner:
            def __init__(self):
                collect()

            def __getattr__(self, name):
                return collect()

            def __del__(self):
                collect()

            def __lt__(self, other):
                collect()
                return True

        collect()

    inner = Outer.Inner()
    inner.missing
    max(inner, inner)
    del inner


def lines():
    try:
        1 / 0
    except ZeroDivisionError:
        gc.collect(0)
    finally:
        gc.collect(
            0)
    with contextlib.ExitStack() as stack:
        stack.callback(collect)
    for _ in range(3):
        if _ % 2:
            gc.collect(0); collect()  # noqa: E702
        elif (_ == 0 and
              gc.collect(0) is not None):
            pass
    x = (1,
         gc.collect(0),
         2)
    while x:
        x = collect()


def automatic():
    kept = []
    for i in range(3000):
        kept.append(
            [i])
    return [[n] for n in range(3000)], {n: (n, [n]) for n in range(2000)}


def code_made_at_run_time():
    names = {"gc": gc}
    exec("def made():\n\n    gc.collect(0)\n", names)
    names["made"]()
    truth.append(names)  # keeps the code alive
    exec(compile("\n\ngc.collect(0)", "größe.py", "exec"), names)  # the code is freed


def code_of_short_life():
    for i in range(60):
        exec(compile("\n" * (i % 7) + f"def function_{i}():\n  gc.collect(0)\nfunction_{i}()", f"made_{i}.py", "exec"),
             {"gc": gc})


def coroutine():
    async def leaf():
        await asyncio.sleep(0)
        collect()

    async def main():
        await asyncio.gather(leaf(), leaf())

    asyncio.run(main())


def long_function():
    """Tables of lines longer than a single step of a reader."""
    names = {"gc": gc}
    source = "def long():\n" + "\n".join(
        "    x = %d%s" % (i, "\n" * (300 if i % 50 == 0 else 1) + "    gc.collect(0)" if i % 100 == 7 else "")
        for i in range(1200)) + "\n" * 500 + "    gc.collect(0)\n"
    exec(compile(source, "long.py", "exec"), names)
    names["long"]()
    truth.append(names)


def frozen_modules():
    """The code is part of the program since 3.11."""
    for call in range(2):
        for _ in os.walk("/does not exist", onerror=lambda error: collect()):
            pass


def popular_code():
    """A closure made repeatedly: each has a reference to the same code."""
    def made():
        gc.collect(0)
    references = [made.__code__] * 1_300_000
    made()
    time.sleep(0.3)  # the place has been read
    del references


def long_names():
    for length in 100, 399, 400, 1000, 1019:
        names = {"gc": gc}
        exec(compile(f"def {'n' * length}(): gc.collect(0)", "/" + "é" * (2 * length), "exec"), names)
        names["n" * length]()
        truth.append(names)


def traced():
    """A call is traced before the first instruction."""
    def trace(frame, event, argument):
        if frame.f_code is called.__code__:
            sys.settrace(None)
            gc.collect(0)

    def called():
        pass

    sys.settrace(trace)
    called()


SCENES = [recursion, deep, generator, comprehension, calls_through_c, lines, automatic, code_made_at_run_time,
          code_of_short_life, coroutine, long_function, frozen_modules, popular_code, long_names, traced]


def play():
    for scene in SCENES:
        local.scene = scene.__name__
        scene()
        time.sleep(0.02)


def main():
    gc.freeze()
    if not warm_up():
        return
    begin = now()
    gc.callbacks.append(callback)
    play()
    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
    gc.callbacks.remove(callback)
    end = now()
    time.sleep(0.3)  # all places have been read
    tell(begin=begin, end=end, truth=[t for t in truth if "stack" in t])
    listen()


main()
