# SPDX-License-Identifier: Apache-2.0
"""One thread keeps the GIL in calls without a release, at all kinds of places; further threads sleep for moments
and have to wait for the GIL. blame.py SECONDS: each thread reports the places with begin and end, in the form of
traceback, innermost first."""
import asyncio
import functools
import gc
import sys
import threading
import time

from workload import frames, listen, now, tell, warm_up

places, marks = {}, []


def mark():
    stack = frames(sys._getframe(1))
    place = places.setdefault(str(stack), (len(places), stack))[0]
    return threading.get_native_id(), place, now()


def done(begin):
    marks.append((*begin, now()))


def hold():
    b = mark(); sum(HELD); done(b)  # noqa: E702


def rest():
    b = mark(); time.sleep(0.001); done(b)  # noqa: E702


def recursion(call, n):
    return recursion(call, n - 1) if n else call()


def generator(call):
    def inner():
        yield call()

    def outer():
        yield from inner()

    return list(outer())


def through_c(call):
    list(map(lambda _: call(), [1]))
    sorted([2, 1], key=lambda x: functools.partial(call)() or x)


class Outer:
    class Inner:
        @functools.lru_cache(None)
        def __getattr__(self, name):
            return call_of[name]()


def decorated(call):
    @functools.wraps(call)
    def wrapper():
        return call()
    return wrapper()


def coroutine(call):
    async def leaf():
        await asyncio.sleep(0)
        call()

    async def main():
        await asyncio.gather(leaf(), leaf())

    asyncio.run(main())


made = {}
exec(compile("\n\ndef größe(call):\n    [call()\n for _ in '1']\n", "größe/名前.py", "exec"), made)
call_of = {"hold": hold, "rest": rest}

SCENES = [lambda call: call(), lambda call: recursion(call, 40), lambda call: recursion(call, 170), generator,
          through_c, decorated, lambda call: getattr(Outer.Inner(), call.__name__), coroutine, made["größe"]]


def play(call, first, until):
    i = first
    while now() < until or not enough():
        SCENES[i % len(SCENES)](call)
        i += 1


def enough():
    """Longer on a busy machine."""
    return len(marks) > 300 or now() > latest


def collect(until):
    while now() < until or not enough():
        b = mark(); gc.collect(); done(b)  # noqa: E702
        time.sleep(0.01)


def length():
    """A length at which keeping the GIL takes some 30 ms."""
    begin = now()
    sum(range(200000))
    return range(int(200000 * 30e6 / (now() - begin)))


def main():
    global HELD, latest
    if not warm_up():
        return
    HELD = length()
    kept = [{} for _ in range(100000)]
    begin = now()
    until = begin + int(float(sys.argv[1]) * 1e9)
    latest = begin + int(12e9)
    threads = [threading.Thread(target=play, args=(hold, 0, until), name="keeps"),
               *(threading.Thread(target=play, args=(rest, i, until), name=f"rests ü{i}") for i in range(3)),
               threading.Thread(target=collect, args=(until,), name="collects")]
    for thread in threads:
        thread.start()
    names = {t.native_id: t.name for t in threads}
    for thread in threads:
        thread.join()
    del kept
    end = now()
    time.sleep(0.4)  # all places have been read
    tell(begin=begin, end=end, names=names, marks=marks, places=[p[1] for p in places.values()])
    listen()


main()
