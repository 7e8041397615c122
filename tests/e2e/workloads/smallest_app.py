# SPDX-License-Identifier: Apache-2.0
"""A handler that does nothing."""
ANSWER = b"ok"


def application(_, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(ANSWER)))])
    return [ANSWER]
