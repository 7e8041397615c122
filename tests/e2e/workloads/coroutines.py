# SPDX-License-Identifier: Apache-2.0
"""Tasks of one event loop for SECONDS: one computes, one blocks in time.sleep(), one only awaits. coroutines.py LOOP SECONDS.
Begins after a line on standard input, and prints the milliseconds for which each kept the loop, by its own clock."""
import asyncio
import json
import sys
import time

kept = {"computes": 0.0, "blocks": 0.0}


def burn():
    begin = time.thread_time()
    while time.thread_time() - begin < 0.02:
        sum(range(2000))
    return time.thread_time() - begin


async def computes(until):
    while time.monotonic() < until:
        kept["computes"] += 1000 * burn()
        await asyncio.sleep(0.02)


async def blocks(until):
    while time.monotonic() < until:
        begin = time.monotonic()
        time.sleep(0.03)
        kept["blocks"] += 1000 * (time.monotonic() - begin)
        await asyncio.sleep(0.02)


async def awaits(until):
    while time.monotonic() < until:
        await asyncio.sleep(0.005)


async def all_tasks(seconds):
    until = time.monotonic() + seconds
    await asyncio.gather(computes(until), blocks(until), awaits(until))


def main():
    if sys.argv[1] == "uvloop":
        import uvloop
        uvloop.install()
    sys.stdin.readline()
    asyncio.run(all_tasks(float(sys.argv[2])))
    print(json.dumps(kept), flush=True)
    sys.stdin.readline()


main()
