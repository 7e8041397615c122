# SPDX-License-Identifier: Apache-2.0
"""Event loops in processes of their own, of which each hands its first request to a thread that it creates: the thread has worked before the
loop would wait for it. Each answer is the id of the thread."""
import asyncio
import concurrent.futures
import os
import signal
import socket
import sys
import threading


async def serve(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        body = str(await asyncio.get_running_loop().run_in_executor(executor, threading.get_native_id)).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()


async def main(listener):
    await (await asyncio.start_server(serve, sock=listener)).serve_forever()


def stop(*_):
    for child in children:
        os.kill(child, signal.SIGTERM)
    sys.exit()


listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
children = []
for listener in listeners:
    children.append(os.fork())
    if not children[-1]:
        asyncio.run(main(listener))
signal.signal(signal.SIGTERM, stop)
print("".join(f"running on http://127.0.0.1:{listener.getsockname()[1]}\n" for listener in listeners), end="", file=sys.stderr, flush=True)
os.wait()
