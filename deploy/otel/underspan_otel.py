# SPDX-License-Identifier: Apache-2.0
"""Puts on every span the ids by which underspan's tables are joined with it: who ran it, in the kernel's terms.

One file without dependencies beyond the OpenTelemetry SDK: copy it beside the application. See README.md. Nothing here keeps
a service from starting or a request from being served: what goes wrong is a line in the log, and spans without the ids.
"""

import logging
import os
import threading
import weakref

try:
    from opentelemetry.sdk.trace import SpanProcessor
except ImportError:  # install() says so
    SpanProcessor = object

log = logging.getLogger("underspan")


def thread_ids():
    """The attributes that a span of the calling thread gets.

    They are asked for at each span and never kept: a pre-fork server's workers inherit what their master has.
    """
    ids = {
        "process.pid": os.getpid(),
        # Not threading.get_ident(), which is a pointer: the kernel never heard of it.
        "thread.id": threading.get_native_id(),
    }
    try:
        # a name may be anything; what is no text would cost an exporter the whole batch
        ids["thread.name"] = str(threading.current_thread().name).encode("utf-8", "replace").decode()
    except Exception:
        pass  # rows are joined by the ids
    return ids


class UnderspanSpanProcessor(SpanProcessor):
    """Sets process.pid, the native thread.id and thread.name when a span starts, on the thread that starts it.

    It holds no thread, lock or buffer, so it may be added before or after a fork.
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
    """Adds the processor to the tracer provider, by default the global one. Returns whether its spans have the ids now.

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
