# SPDX-License-Identifier: Apache-2.0
"""The applications of the servers that `make random` plays. A path says what its handler does: /NUMBER, then steps of steps.py and
async_steps.py, each NAME-MS, and

    body        reads the request's body
    stream-20   answers in three pieces, 20 ms apart
    big-300     adds so many KB to the answer
    status-404  the answer's
"""
import os

if os.environ.get("RANDOM_GEVENT"):
    import gevent.monkey
    gevent.monkey.patch_all()

import async_steps  # noqa: E402
import helpers  # noqa: E402
import steps  # noqa: E402
from truth import Segment, Truth  # noqa: E402

REASONS = {200: "OK", 201: "Created", 302: "Found", 404: "Not Found", 500: "Internal Server Error", 503: "Service Unavailable"}
APP = os.environ.get("RANDOM_APP", "")


class Plan:
    def __init__(self, path):
        words = [word for word in path.partition("?")[0].split("/") if word]
        self.number = int(words[0]) if words else 0
        self.steps, self.answer = [], {"status": 200, "big": 0, "stream": 0}
        for name, _, value in (word.partition("-") for word in words[1:]):
            if name in self.answer:
                self.answer[name] = int(value)
            else:
                self.steps.append((name, int(value or 0)))
        self.status, self.stream_ms = self.answer["status"], self.answer["stream"]
        self.body = b"x" * (self.answer["big"] * 1000 + 10)
        self.status_line = f"{self.status} {REASONS[self.status]}"


def run(plan, read):
    """All but the streaming."""
    truth = Truth(plan.number)
    for name, ms in plan.steps:
        truth.add(read_body(truth, read) if name == "body" else block(plan, name, ms))
    return truth


def read_body(truth, read):
    segment = Segment("body")
    truth.facts["received"] += len(read())
    return segment.end()


def block(plan, name, ms):
    more = [plan.number] if name == "own_server" else []
    return getattr(steps, "step_" + name)(ms, *more)


async def run_async(truth, plan, read):
    for name, ms in plan.steps:
        if name == "body":
            segment = Segment("body")
            truth.facts["received"] += len(await read())
            truth.add(segment.end(awaits=True))
        elif name.startswith("pool:"):
            truth.add(await async_steps.step_pool(ms, name[len("pool:"):]))
        elif hasattr(async_steps, "step_" + name):
            truth.add(await getattr(async_steps, "step_" + name)(ms))
        else:
            truth.add(block(plan, name, ms))


def wsgi(environ, start_response):
    plan = Plan(environ["PATH_INFO"])

    def read():
        chunked = environ.get("HTTP_TRANSFER_ENCODING") == "chunked"
        return environ["wsgi.input"].read(*([] if chunked else [int(environ.get("CONTENT_LENGTH") or 0)]))
    truth = run(plan, read)
    headers = [("Content-Type", "text/plain")]
    if plan.stream_ms:
        start_response(plan.status_line, headers)
        return stream(plan, truth)
    start_response(plan.status_line, [*headers, ("Content-Length", str(len(plan.body)))])
    truth.end()
    return [plan.body] if environ["REQUEST_METHOD"] != "HEAD" else []


def stream(plan, truth):
    try:
        for _ in range(2):
            yield b"part\n"
            truth.add(steps.step_sleep(plan.stream_ms))
        truth.end()
        yield plan.body
    finally:
        truth.end()  # the client has left


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":  # to return without an answer ends hypercorn's trio worker
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        return await send({"type": "lifespan.shutdown.complete"})
    plan = Plan(scope["path"])
    truth = Truth(plan.number)
    try:
        await answer_asgi(scope, receive, send, plan, truth)
    except BaseException:
        truth.cancel()
        raise


async def answer_asgi(scope, receive, send, plan, truth):
    async def read():
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            body, more = body + message.get("body", b""), message.get("more_body", False)
        return body
    await run_async(truth, plan, read)
    start = {"type": "http.response.start", "status": plan.status, "headers": []}
    if plan.stream_ms:
        await send(start)
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"part\n", "more_body": True})
            truth.add(await async_steps.step_await(plan.stream_ms))
        truth.end()
        return await send({"type": "http.response.body", "body": plan.body})
    await send({**start, "headers": [(b"content-length", b"%d" % len(plan.body))]})
    truth.end()
    await send({"type": "http.response.body", "body": plan.body if scope["method"] != "HEAD" else b""})


def make_django(name):
    """`django_async`, a coroutine as view; `django_sync`, a function, which Django runs in a thread; `django_wsgi`."""
    import django
    import django.conf
    import django.http
    import django.urls
    from django.core.handlers.asgi import ASGIHandler
    from django.core.handlers.wsgi import WSGIHandler

    def answer(request, plan, truth):
        truth.end()
        return django.http.HttpResponse(plan.body if request.method != "HEAD" else b"", status=plan.status)

    def view(request):
        plan = Plan(request.path)
        return answer(request, plan, run(plan, lambda: request.body))

    async def async_view(request):
        async def read():
            return request.body
        plan = Plan(request.path)
        truth = Truth(plan.number)
        await run_async(truth, plan, read)
        return answer(request, plan, truth)
    urls = (django.urls.re_path("", async_view if name == "django_async" else view),)
    django.conf.settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=urls, SECRET_KEY="-", LOGGING_CONFIG=None, MIDDLEWARE=[],
                                   DATA_UPLOAD_MAX_MEMORY_SIZE=None)
    django.setup()
    return WSGIHandler() if name == "django_wsgi" else ASGIHandler()


def make_fastapi():
    """An endpoint that is a function, which FastAPI runs in a thread."""
    from fastapi import Depends, FastAPI, Request, Response
    app = FastAPI()

    async def body_of(request: Request):
        return await request.body()

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE"])
    def endpoint(path: str, data: bytes = Depends(body_of)):
        plan = Plan(path)
        truth = run(plan, lambda: data)
        truth.end()
        return Response(plan.body, status_code=plan.status)
    return app


if APP == "fastapi":
    fastapi = make_fastapi()
elif APP.startswith("django"):
    globals()[APP] = make_django(APP)
if not os.environ.get("RANDOM_GEVENT"):
    helpers.Helper.prepare()
