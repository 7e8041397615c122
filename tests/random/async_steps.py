# SPDX-License-Identifier: Apache-2.0
"""The steps of a coroutine, under asyncio or trio, as those of steps.py: the thread serves other requests meanwhile."""
import asyncio
import os
import time

import steps
from steps import MS, PEER_PORT
from truth import Segment

TRIO = bool(os.environ.get("RANDOM_TRIO"))
if TRIO:
    import trio


async def sleep(ms):
    await (trio.sleep if TRIO else asyncio.sleep)(ms / 1000)


async def in_pool(function, *arguments):
    if TRIO:
        return await trio.to_thread.run_sync(function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


async def step_await(ms):
    segment = Segment("await")
    await sleep(ms)
    return segment.end({"await": ms * MS}, awaits=True)


async def step_pool(ms, name):
    """A blocking step in a thread of the loop's pool."""
    segment = Segment("pool:" + name)
    inner = await in_pool(getattr(steps, "step_" + name), ms)
    return segment.end(awaits=True, inner=inner)


async def step_async_net(ms):
    segment = Segment("async_net")
    reader, writer = await asyncio.open_connection("127.0.0.1", PEER_PORT)
    writer.write(b"%d\n" % ms)
    await reader.read(100)
    writer.close()
    return segment.end({"await": ms * MS}, awaits=True)


async def step_gather(ms):
    segment = Segment("gather")
    if TRIO:
        await sleep(ms)
    else:
        await asyncio.gather(asyncio.sleep(ms / 1000), asyncio.sleep(ms / 2000))
    return segment.end({"await": ms * MS}, awaits=True)


async def step_gather_pool(ms):
    """Waits for the loop and for a thread of the pool at once."""
    segment = Segment("gather_pool")
    if TRIO:
        await sleep(ms)
    else:
        await asyncio.gather(asyncio.sleep(ms / 1000), in_pool(time.sleep, ms / 2000))
    return segment.end(awaits=True, elsewhere=True)


async def step_async_event(ms):
    segment = Segment("async_event")
    if TRIO:
        await sleep(ms)
    else:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(ms / 1000, event.set)
        await event.wait()
    return segment.end({"await": ms * MS}, awaits=True)


async def step_async_child(ms):
    """asyncio may wait for the child in a thread."""
    segment = Segment("async_child")
    child = await asyncio.create_subprocess_exec("/bin/sleep", str(ms / 1000))
    await child.wait()
    return segment.end(awaits=True, elsewhere=True)
