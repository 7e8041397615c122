# SPDX-License-Identifier: Apache-2.0
"""CPython's module for making interpreters, by the name of this version: `interpreters`."""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters


def create(isolated):
    try:
        return interpreters.create("isolated" if isolated else "legacy")  # 3.13
    except TypeError:
        return interpreters.create(isolated=isolated)
