# SPDX-License-Identifier: Apache-2.0
"""The module with which CPython makes interpreters, by the name that this version has for it: `interpreters`."""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters


def create(isolated):
    try:
        return interpreters.create("isolated" if isolated else "legacy")  # 3.13
    except TypeError:
        return interpreters.create(isolated=isolated)
