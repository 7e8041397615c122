# SPDX-License-Identifier: Apache-2.0
"""many_modules.py N: N modules in sys.modules, threading the last; then a named thread collects."""
import gc
import sys
import threading
import time
import types

from workload import listen, tell, warm_up

for i in range(int(sys.argv[1])):
    sys.modules["module_%d" % i] = types.ModuleType("module_%d" % i)
sys.modules["threading"] = sys.modules.pop("threading")


def work():
    for _ in range(20):
        gc.collect(0)
        time.sleep(0.02)


if warm_up():
    thread = threading.Thread(target=work, name="wörker of many")
    thread.start()
    tid = thread.native_id
    thread.join()
    tell(tid=tid, modules=len(sys.modules))
    listen()
