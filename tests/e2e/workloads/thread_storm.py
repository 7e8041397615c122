# SPDX-License-Identifier: Apache-2.0
"""thread_storm.py N NAME: starts N threads in sequence, each named NAME; then stays."""
import os
import sys
import threading

from workload import listen, tell, warm_up


def main():
    if not warm_up():
        return
    for _ in range(int(sys.argv[1])):
        thread = threading.Thread(target=int, name=sys.argv[2])
        thread.start()
        thread.join()
    tell(done=True)
    listen()
    os._exit(0)


main()
