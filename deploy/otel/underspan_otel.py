# SPDX-License-Identifier: Apache-2.0
"""Puts on every span the ids by which underspan's tables are joined with it: who ran it, in the kernel's terms.

One file without dependencies beyond the OpenTelemetry SDK: copy it beside the application. See README.md.
"""

import os
import threading

from opentelemetry.sdk.trace import SpanProcessor


class UnderspanSpanProcessor(SpanProcessor):
    """Sets process.pid, the native thread.id and thread.name when a span starts, on the thread that starts it.

    The ids are asked for at each span and never kept: a pre-fork server's workers inherit this object. It holds
    no thread, lock or buffer, so it may be added before or after a fork.
    """

    def on_start(self, span, parent_context=None):
        span.set_attributes(
            {
                "process.pid": os.getpid(),
                # Not threading.get_ident(), which is a pointer: the kernel never heard of it.
                "thread.id": threading.get_native_id(),
                "thread.name": threading.current_thread().name,
            }
        )
