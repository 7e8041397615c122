# SPDX-License-Identifier: Apache-2.0
"""short_service.py SECONDS: a service that lives for this long and waits briefly, in a thread with a name. Says
the thread's id and how often it was switched out."""
import sys
import threading
import time


def pause_here(until):
    while time.monotonic() < until:
        time.sleep(0.003)
    with open("/proc/thread-self/status") as f:
        print(threading.get_native_id(), sum(int(line.split()[1]) for line in f if "ctxt_switches" in line))


thread = threading.Thread(target=pause_here, args=[time.monotonic() + float(sys.argv[1])], name="pauser")
thread.start()
thread.join()
