# SPDX-License-Identifier: Apache-2.0
"""Threads that sleep on locks: some wait for work, some are kept waiting. off_cpu_idle.py N; each waits at least N
times for 20 ms, always for the same reason, the first word of the thread's name."""
import concurrent.futures
import os
import queue
import sys
import threading
import time

from workload import listen, tell, warm_up

N, SECONDS = int(sys.argv[1]), 0.02
tids = {}


def me(name):
    tids[name] = threading.get_native_id()


def each_while(work):
    for _ in range(N):
        time.sleep(SECONDS)
        work()


class Consumer(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.queue = queue.Queue()

    def run(self):
        me("idle consumer")
        while self.queue.get():
            pass


def wait_for_news(condition):
    me("idle condition")
    with condition:
        while True:
            condition.wait()


def tick(event):
    me("idle ticker")
    while not event.wait(SECONDS):
        pass


def tell_condition(condition):
    with condition:
        condition.notify_all()


def contend(held):
    me("busy lock")
    each_while(lambda: held.acquire() and held.release())


def holder(held):
    while True:
        with held:
            time.sleep(2 * SECONDS)
        time.sleep(SECONDS / 4)


def ask(questions, answers):
    questions.put("?")
    return answers.get()


def asker(questions, answers):
    me("busy asker")
    for _ in range(N):
        ask(questions, answers)


def answerer(questions, answers):
    while True:
        questions.get()
        time.sleep(SECONDS)
        answers.put("!")


def waits_for_result(pool):
    me("busy result")
    for _ in range(N):
        pool.submit(time.sleep, SECONDS).result()


def start(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


if not warm_up():
    sys.exit()
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(me, "idle pool").result()
consumer, condition, held = Consumer(), threading.Condition(), threading.Lock()
consumer.start()
start(wait_for_news, condition)
start(tick, threading.Event())
start(holder, held)
questions, answers = queue.Queue(), queue.Queue()
start(answerer, questions, answers)
busy = [start(contend, held), start(asker, questions, answers),
        start(waits_for_result, concurrent.futures.ThreadPoolExecutor(1))]
each_while(lambda: (pool.submit(int), consumer.queue.put(1), tell_condition(condition)))
for thread in busy:
    thread.join()
tell(tids=tids)
listen()
os._exit(0)
