# SPDX-License-Identifier: Apache-2.0
"""Endpoints handed by a loop to a pool of four threads. Each answer has the id of the thread that ran the endpoint, and the
duration."""
import asyncio
import concurrent.futures
import json
import os
import socket
import threading
import time

import anyio
from fastapi import Depends, FastAPI, Response
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse

app = FastAPI()


@app.on_event("startup")
async def limit():
    anyio.to_thread.current_default_thread_limiter().total_tokens = int(os.environ.get("POOL_THREADS", "4"))


executor = concurrent.futures.ThreadPoolExecutor(int(os.environ.get("POOL_THREADS", "4")))


def work(ms):
    begin = time.monotonic_ns()
    time.sleep(ms / 1000)
    until = time.thread_time_ns() + ms * 100_000
    while time.thread_time_ns() < until:
        pass
    return Response(headers={"X-Tid": str(threading.get_native_id()), "X-Ns": str(time.monotonic_ns() - begin)})


@app.get("/pool/{ms}")
def pool(ms: int):
    return work(ms)


def dependency():
    time.sleep(0.002)


@app.get("/twice/{ms}")
def twice(ms: int, _=Depends(dependency)):
    """Two hand-overs."""
    return work(ms)


@app.get("/peer/{port}")
def peer(port: int):
    """Waits for a byte of that port."""
    begin = time.monotonic_ns()
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.recv(1)
    return Response(headers={"X-Tid": str(threading.get_native_id()), "X-Ns": str(time.monotonic_ns() - begin)})


def asleep(ms):
    begin = time.monotonic_ns()
    time.sleep(ms / 1000)
    return Response(headers={"X-Tid": str(threading.get_native_id()), "X-Ns": str(time.monotonic_ns() - begin)})


@app.get("/asleep/{ms}")
def pool_asleep(ms: int):
    return asleep(ms)


@app.get("/executor/{ms}")
async def executor_asleep(ms: int):
    return await asyncio.get_running_loop().run_in_executor(executor, asleep, ms)


@app.get("/shared/{ms}")
async def shared(ms: int):
    """By threads that take their work from one queue."""
    return await asyncio.get_running_loop().run_in_executor(executor, work, ms)


one_thread = concurrent.futures.ThreadPoolExecutor(1)


async def several_calls(executor, ms):
    """As Django's handler for ASGI: signals and middleware before and after the view, all in one thread."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(executor, int)
    answer = await loop.run_in_executor(executor, work, ms)
    await loop.run_in_executor(executor, int)
    return answer


@app.get("/calls/{ms}")
async def calls(ms: int):
    return await several_calls(one_thread, ms)


@app.get("/blocked/{ms}")
async def blocked(ms: int):
    """An asynchronous view of Django that blocks the loop between two calls of the thread."""
    return await blocked_between(one_thread, ms)


async def blocked_between(executor, ms):
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(executor, int)
    answer = asleep(ms)
    await loop.run_in_executor(executor, int)
    return answer


@app.get("/own_blocked/{ms}")
async def own_blocked(ms: int):
    """The same as newer Django has it: a thread for this request only."""
    executor = concurrent.futures.ThreadPoolExecutor(1)
    answer = await blocked_between(executor, ms)
    answer.background = BackgroundTask(executor.shutdown)
    return answer


@app.get("/own/{ms}")
async def own(ms: int):
    """A thread for this request only, created for the first call, ended behind the answer."""
    executor = concurrent.futures.ThreadPoolExecutor(1)

    async def end():
        executor.shutdown()
    answer = await several_calls(executor, ms)
    answer.background = BackgroundTask(end)
    return answer


def work_in_parts(loop, parts, ms):
    def tell(part):
        loop.call_soon_threadsafe(parts.put_nowait, part)
    time.sleep(ms / 1000)
    tell(b" ")
    begin = time.monotonic_ns()
    until = time.thread_time_ns() + ms * 300_000
    while time.thread_time_ns() < until:
        pass
    tell(json.dumps({"tid": threading.get_native_id(), "behind": time.monotonic_ns() - begin}).encode())
    tell(None)


@app.get("/parts/{ms}")
async def in_parts(ms: int):
    """As a2wsgi: the thread does not wait for what it has told the loop to write. The answer begins with the first part."""
    parts = asyncio.Queue()
    thread = asyncio.ensure_future(anyio.to_thread.run_sync(work_in_parts, asyncio.get_running_loop(), parts, ms))
    part = await parts.get()

    async def stream():
        nonlocal part
        while part is not None:
            yield part
            part = await parts.get()
        await thread
    return StreamingResponse(stream())


@app.post("/unread/{ms}")
def unread(ms: int):
    """Does not wait for the body."""
    return work(ms)


@app.get("/loop/{ms}")
async def loop(ms: int):
    await anyio.sleep(ms / 1000)
    return Response(headers={"X-Tid": str(threading.get_native_id()), "X-Ns": str(ms * 1_000_000)})
