# SPDX-License-Identifier: Apache-2.0
"""Collections inside an isolated and a legacy subinterpreter. Reports generations and results."""
import gc
import os

from subinterpreters import create, interpreters
from workload import listen, now, tell, warm_up


def main():
    # collections during imports inside the new interpreters are not counted: begin is taken after the imports
    if not warm_up():
        return
    gc.disable()
    created = [create(True), create(False)]
    for interpreter in created:
        interpreters.run_string(interpreter, "import gc; gc.disable(); gc.collect(); gc.collect()")
    begin = now()
    for interpreter in created:
        interpreters.run_string(interpreter, "a = []; a.append(a); del a\nfor g in (0, 1, 2): gc.collect(g)")
    end = now()
    tell(begin=begin, end=end, generations=[0, 1, 2] * 2, collected=[1, 0, 0] * 2)
    listen()
    os._exit(0)


main()
