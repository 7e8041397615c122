# SPDX-License-Identifier: Apache-2.0
"""The kinds of servers that `make random` plays: what is known of each, and how to start it."""
import dataclasses
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.realpath("/usr/bin/python3")  # Debian's packages of servers are its
GUNICORN = f"{PYTHON} -m gunicorn --workers=1 --graceful-timeout=1 --log-level=warning --keep-alive=5"


@dataclasses.dataclass(frozen=True)
class Kind:
    program: str  # a function command_PROGRAM of this file, or run_PROGRAM of libraries.py
    options: str = ""
    app: str = "wsgi"  # the name of the application in app.py
    model: str = "thread"  # of the thread that runs a handler: one of its own, the event loop's, one of a pool
    threads: int = 0  # how many handlers run at once; 0: not known, 99: as many as there are requests
    keeps: bool = True  # connections stay open for the next request
    unix: str = ""  # "may": can listen on a unix socket, "only": cannot do otherwise
    green: bool = False  # no blocking steps but those which gevent makes awaits
    gevent: bool = False  # the standard library is gevent's
    trio: bool = False  # no asyncio
    view: bool = False  # the framework has read the body when the handler begins, and sends an answer in one piece
    chunked: bool = True  # takes a body in chunks
    expect: bool = True  # takes Expect: 100-continue
    defers: bool = False  # TCP_DEFER_ACCEPT: no connection before the first byte
    environment: tuple = ()


# The order is part of what a seed means: new kinds make other plans of all seeds.
KINDS = {
    "aiohttp": Kind("aiohttp", app="asgi", model="loop", unix="may"),
    "cheroot": Kind("cheroot", threads=3, unix="may"),
    "daphne": Kind("daphne", app="asgi", model="loop", unix="may"),
    "daphne-django": Kind("daphne", app="django_async", model="loop", unix="may", view=True),
    "daphne-django-sync": Kind("daphne", app="django_sync", model="pool", unix="may", view=True),
    "fastapi": Kind("uvicorn", "--loop=asyncio --http=h11", app="fastapi", model="pool", view=True),
    "forking": Kind("forking", threads=99),
    "gunicorn-gevent": Kind("gunicorn", "--worker-class=gevent", model="loop", unix="may", green=True, gevent=True, chunked=False),
    "gunicorn-gthread": Kind("gunicorn", "--worker-class=gthread --threads=3", threads=3, unix="may"),
    "gunicorn-django": Kind("gunicorn", "--worker-class=gthread --threads=3", app="django_wsgi", threads=3, view=True),
    "gunicorn-2-workers": Kind("gunicorn", "--worker-class=gthread --threads=2 --workers=2", threads=2, unix="may"),
    "gunicorn-tornado": Kind("gunicorn", "--worker-class=tornado", model="loop", unix="may", green=True),
    "gunicorn-uvicorn": Kind("gunicorn", "--worker-class=uvicorn.workers.UvicornWorker", app="asgi", model="loop", unix="may"),
    "http.server": Kind("http_server", threads=1),
    "hypercorn": Kind("hypercorn", app="asgi", model="loop", unix="may"),
    "hypercorn-trio": Kind("hypercorn", "--worker-class=trio", app="asgi", model="loop", trio=True),
    "hypercorn-uvloop": Kind("hypercorn", "--worker-class=uvloop", app="asgi", model="loop"),
    "pywsgi": Kind("pywsgi", model="loop", green=True, gevent=True, chunked=False),
    "gunicorn-sync": Kind("gunicorn", "--worker-class=sync", threads=1, keeps=False, unix="may"),
    "threading": Kind("threading", threads=99),
    "threading-http1.0": Kind("threading", threads=99, keeps=False, environment=(("RANDOM_PROTOCOL", "HTTP/1.0"),)),
    "tornado": Kind("tornado", app="asgi", model="loop", unix="may"),
    "twisted": Kind("twisted", model="pool", threads=3, unix="may"),
    "threading-unix": Kind("threading_unix", threads=99, unix="only"),
    "uvicorn-django": Kind("uvicorn", "--loop=asyncio --http=h11 --lifespan=off", app="django_async", model="loop", view=True),
    "uvicorn-django-sync": Kind("uvicorn", "--loop=uvloop --http=httptools --lifespan=off", app="django_sync", model="pool", view=True),
    "uvicorn-h11": Kind("uvicorn", "--loop=asyncio --http=h11", app="asgi", model="loop", unix="may"),
    "uvicorn-httptools": Kind("uvicorn", "--loop=asyncio --http=httptools", app="asgi", model="loop", unix="may"),
    "uvicorn-uvloop": Kind("uvicorn", "--loop=uvloop --http=httptools", app="asgi", model="loop", unix="may"),
    "uwsgi": Kind("uwsgi", "--threads=3", threads=3, keeps=False, chunked=False, expect=False, defers=True),
    "uwsgi-1-thread": Kind("uwsgi", threads=1, keeps=False, chunked=False, expect=False, defers=True),
    "waitress": Kind("waitress", model="pool", threads=3, unix="may"),
    "werkzeug": Kind("werkzeug", threads=99, keeps=False, unix="may", chunked=False),
    "wsgiref": Kind("wsgiref", threads=1, keeps=False, chunked=False, expect=False),
}


def command_gunicorn(kind, port, path):
    bind = f"unix:{path}" if path else f"127.0.0.1:{port}"
    return [*GUNICORN.split(), f"--bind={bind}", *kind.options.split(), "app:" + kind.app]


def command_uvicorn(kind, port, path):
    where = f"--uds={path}" if path else f"--port={port}"
    return [PYTHON, "-m", "uvicorn", where, "--log-level=error", *kind.options.split(), "app:" + kind.app]


def command_hypercorn(kind, port, path):
    bind = f"unix:{path}" if path else f"127.0.0.1:{port}"
    return [PYTHON, "-m", "hypercorn", f"--bind={bind}", "--graceful-timeout=1", "--log-level=error", *kind.options.split(), "app:" + kind.app]


def command_daphne(kind, port, path):
    where = ["-u", path] if path else ["-b", "127.0.0.1", "-p", str(port)]
    return [PYTHON, "-m", "daphne", *where, "--verbosity=0", "app:" + kind.app]


def command_uwsgi(kind, port, path):
    plugin = sorted(glob.glob("/usr/lib/uwsgi/plugins/python3*_plugin.so"))[0]
    return ["uwsgi-core", "--plugin", plugin, "--enable-threads", *kind.options.split(), f"--http-socket=127.0.0.1:{port}", "--module=app:wsgi",
            "--disable-logging", "--die-on-term"]


def command_of(name, port, path):
    """path: the unix socket's, or None."""
    kind = KINDS[name]
    make = getattr(sys.modules[__name__], "command_" + kind.program, None)
    if make:
        return make(kind, port, path)
    return [PYTHON, os.path.join(HERE, "libraries.py"), kind.program, *([path] if path else ["127.0.0.1", str(port)])]
