# SPDX-License-Identifier: Apache-2.0
"""A Celery application whose tasks are spans, by the processor as in workloads/spans.py: the worker sends itself ten tasks."""
import celery
import celery.signals
import spans

app = celery.Celery("celery_tasks", broker="memory://localhost/")
app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)


@app.task
def order(number):
    with spans.span("server"):
        spans.work("/fork" if number % 2 else "/")


@celery.signals.worker_ready.connect
def send(**_):
    for number in range(10):
        order.delay(number)
