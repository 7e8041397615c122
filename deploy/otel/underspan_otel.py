# SPDX-License-Identifier: Apache-2.0
"""Adds to every span the ids of thread and process, for joins with underspan's tables.

One module without dependencies beyond the OpenTelemetry SDK: the wheel underspan-otel, or this file beside the application. See
README.md. Nothing here stops a service's start or a request: a failure causes a line in the log, and
spans without the ids.
"""

import functools
import logging
import os
import threading
import weakref

try:
    from opentelemetry.sdk.trace import SpanProcessor
except ImportError:  # install() says so
    SpanProcessor = object

__version__ = "0.1.0"

log = logging.getLogger("underspan")

# Identity of the kernel and the PID namespace, the scope of pid and tid. (pid, attributes), made once per process: a
# worker of a pre-fork server may run in a different namespace than the master.
_place = (0, {})


def _read_place():
    """boot_id is the same in every container of a host, the namespace's inode is the container's own."""
    place = {}
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            place["boot_id"] = file.read().strip()
        place["pidns"] = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        place.clear()  # half of a key is useless; with a hidden /proc, ids, host and container remain for the join
    return place


def _forget_place():
    global _place
    _place = (0, {})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_place)


def thread_ids():
    """The attributes for a span of the calling thread.

    Pid and tid are read for each span, never cached: a pre-fork server's workers inherit the master's memory.
    """
    global _place
    pid = os.getpid()
    if _place[0] != pid:
        _place = (pid, _read_place())
    ids = {
        "process.pid": pid,
        # Not threading.get_ident(): a pointer, unknown to the kernel.
        "thread.id": threading.get_native_id(),
        **_place[1],
    }
    try:
        # a name may be any object; without a text an exporter would lose the whole batch
        ids["thread.name"] = str(threading.current_thread().name).encode("utf-8", "replace").decode()
    except Exception:
        pass  # rows are joined by the ids
    return ids


class UnderspanSpanProcessor(SpanProcessor):
    """Sets the attributes of thread_ids() at a span's start, on the starting thread.

    Holds no thread, lock or buffer, so may be added before or after a fork.
    """

    _complained = False

    def on_start(self, span, parent_context=None):
        try:
            span.set_attributes(thread_ids())
        except Exception:
            if not self._complained:
                self._complained = True
                log.warning("underspan: a span goes without its thread's ids; this is said once", exc_info=True)


_done = weakref.WeakSet()


def install(provider=None):
    """Adds the processor to the tracer provider, by default the global one. Returns whether the provider's spans have the ids.

    Never raises. May be called again, as by each worker of a pre-fork server.
    """
    try:
        if SpanProcessor is object:
            log.warning("underspan: spans carry no thread ids: the OpenTelemetry SDK is not installed")
            return False
        if provider is None:
            from opentelemetry import trace

            provider = trace.get_tracer_provider()
        if provider in _done:
            return True
        if not hasattr(provider, "add_span_processor"):
            log.warning(
                "underspan: spans carry no thread ids: no tracer provider of the SDK is set (it is a %s); "
                "call underspan_otel.install() after trace.set_tracer_provider()",
                type(provider).__name__,
            )
            return False
        provider.add_span_processor(UnderspanSpanProcessor())
        _done.add(provider)
        return True
    except Exception:
        log.warning("underspan: spans carry no thread ids: the processor could not be added", exc_info=True)
        return False


def _follow_set_tracer_provider(trace):
    """The application's own trace.set_tracer_provider() adds the processor, too, in any calling process."""
    original = trace.set_tracer_provider
    if getattr(original, "_underspan", False):
        return

    @functools.wraps(original)
    def set_tracer_provider(*args, **kwargs):
        result = original(*args, **kwargs)
        install()
        return result

    set_tracer_provider._underspan = True
    trace.set_tracer_provider = set_tracer_provider


def instrument():
    """The entry point called by opentelemetry-instrument before the service's code. Never raises."""
    try:
        if SpanProcessor is object:
            install()  # says why not
            return
        from opentelemetry import trace

        if hasattr(trace.get_tracer_provider(), "add_span_processor"):
            install()
            return
        # no distribution has configured a provider: the application may set a provider, even in each worker
        _follow_set_tracer_provider(trace)
        log.warning("underspan: no tracer provider is configured yet: spans carry thread ids once the application sets one")
    except Exception:
        log.warning("underspan: spans carry no thread ids: the entry point failed", exc_info=True)
