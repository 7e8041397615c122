# SPDX-License-Identifier: Apache-2.0
"""Rows for sql/explain/outbound.sql: a request of a second, at host out-1, and what its connections brought to servers; beside each that
is its own, one that only looks so. Times are milliseconds after the request's begin."""
import sql_known

HOUR, MS = sql_known.HOUR, 1000
AGO = 70 * HOUR  # before the windows of the other questions
PID, THREAD, SIBLING, ID, TRACE = 400, 401, 402, 9000, "5e" * 16
LOCAL, POD, REMOTE = "::ffff:127.0.0.1", "::ffff:10.3.0.1", "::ffff:10.3.0.2"
PARAMETERS = {"pid": PID, "tid": THREAD, "host": "out-1", "container_id": "", "request_id": str(ID), "from_us": lambda now: now - AGO,
              "to_us": lambda now: now - AGO + 1000 * MS}


class Rows:
    def __init__(self, now):
        self.begin, self.rows = now - AGO, {"ebpf_request": [], "ebpf_tcp_connect": [], "ebpf_tcp_connect_closed": [], "ebpf_off_cpu": []}

    def row(self, table, at, ms, **more):
        begin = self.begin + at * MS
        self.rows[table].append({"host": "out-1", "container_id": "", "pod_uid": "", "pod": "", "weight": 1.0, "trace_id": "", "start_time": begin,
                                 "end_time": begin + ms * MS, "duration_ns": ms * 1_000_000, **more})

    def request(self, request_id, at, ms, parts, **more):
        whole = {**dict.fromkeys(sql_known.PARTS, 0), **parts}
        self.row("ebpf_request", at, ms, **{"request_id": request_id, "pid": 500, "tid": 500, "netns": 1, "service": "stock", "method": "GET", "path": f"/{request_id}",
                                            **{f"{name}_ns": None if v is None else v * 1_000_000 for name, v in whole.items()}, **more})

    def connection(self, at, ip, port, to, to_port, tid=THREAD, closed=None):
        it = {"pid": PID, "tid": tid, "local_ip": ip, "local_port": port, "remote_ip": to, "remote_port": to_port, "netns": 1}
        self.row("ebpf_tcp_connect", at, 1, **it, outcome="success")
        if closed is not None:
            self.row("ebpf_tcp_connect_closed", at + 1, closed - at - 1, **it)

    def wait(self, at, ms):
        """Then 50 ms on the run queue."""
        self.row("ebpf_off_cpu", at, ms + 50, pid=PID, tid=THREAD, cause="net", idle=0, runq_ns=50_000_000)


def compose(now):
    r = Rows(now)
    own = {"pid": PID, "service": "shop", "server_port": 8000, "peer_ip": REMOTE, "peer_port": 40}
    r.request(ID, 0, 1000, {"net": 1000}, **own, tid=THREAD, trace_id=TRACE)
    r.request(9001, 0, 1000, {"queue": 850, "cpu": 150}, **own, tid=SIBLING)  # handled from 850 on
    # a connection that it opened, to another host; then its address at another port there, opened by another thread
    r.connection(10, POD, 5001, REMOTE, 80)
    r.request(9002, 11, 300, {"accept_queue": 200, "sleep": 90, "gil": None, "cpu": 10}, host="out-2", server_port=80, peer_ip=POD, peer_port=5001, weight=2.0)
    r.request(9003, 11, 300, {"sleep": 300}, host="out-2", server_port=81, peer_ip=POD, peer_port=5001)
    r.connection(20, POD, 5002, REMOTE, 80, tid=SIBLING)
    r.request(9004, 21, 100, {"sleep": 100}, host="out-2", server_port=80, peer_ip=POD, peer_port=5002)
    # one of before; the same address in another namespace, on another host and at another server
    local = {"server_port": 8080, "peer_ip": LOCAL}
    r.connection(-60_000, LOCAL, 5003, LOCAL, 8080)
    r.wait(400, 200)
    for request_id, more in (9005, {}), (9006, {"netns": 2}), (9007, {"host": "out-2"}), (9018, {"server_port": 8082}):
        r.request(request_id, 400, 200, {"cpu": 200}, **{**local, "peer_port": 5003, **more})
    # a container's port is another one outside; that of no container is not
    r.connection(15, POD, 5010, REMOTE, 80)
    for request_id, container in (9019, "c1"), (9020, ""):
        r.request(request_id, 16, 30, {"cpu": 30}, server_port=9000, peer_ip=POD, peer_port=5010, container_id=container)
    # addresses of two hosts' containers
    r.connection(-60_000, POD, 5004, REMOTE, 80)
    r.wait(700, 100)
    for request_id, host in (9008, "out-2"), (9009, "out-3"):
        r.request(request_id, 700, 100, {"cpu": 100}, host=host, server_port=80, peer_ip=POD, peer_port=5004)
    # while the sibling is handled: of none, but of the trace
    for port in 5005, 5006:
        r.connection(-60_000, LOCAL, port, LOCAL, 8080)
    r.wait(860, 80)
    r.request(9010, 860, 80, {"cpu": 80}, **local, peer_port=5005)
    r.request(9011, 870, 60, {"cpu": 60}, **local, peer_port=5006, trace_id=TRACE)
    # before, an hour old, and without a wait that ends with its answer
    r.request(9012, -100, 50, {"cpu": 50}, **local, peer_port=5003)
    r.connection(-3_700_000, LOCAL, 5007, LOCAL, 8080)
    r.request(9013, 400, 200, {"cpu": 200}, **local, peer_port=5007)
    r.request(9014, 300, 60, {"cpu": 60}, **local, peer_port=5003)
    # its port is another process's since; closed after the answer; one of many
    r.connection(-60_000, LOCAL, 5008, LOCAL, 8080, closed=-50)
    r.connection(-50_000, LOCAL, 5009, LOCAL, 8080, closed=-40_000)
    r.connection(-30_000, LOCAL, 5009, LOCAL, 8080, closed=900)
    for port in range(5200, 5401):
        r.connection(-30_000, LOCAL, port, LOCAL, 8081)
    for request_id, port in (9015, 5008), (9016, 5009), (9017, 5200):
        r.request(request_id, 402, 196, {"disk": 196}, **{**local, "peer_port": port})
    return r.rows


def add_to(tables, now):
    """Further columns are copied from some row."""
    for table, rows in compose(now).items():
        tables[table] += [{**tables[table][0], **row} for row in rows]


def truth(known, now):
    begin = now - AGO
    return [["out-2", "stock", 80, 2, 600, "9002", "GET", "/9002", begin + 11 * MS, begin + 311 * MS, [["accept_queue", 400], ["sleep", 180]]],
            ["out-1", "stock", 8080, 3, 456, "9005", "GET", "/9005", begin + 400 * MS, begin + 600 * MS, [["cpu", 260], ["disk", 196]]],
            ["out-1", "stock", 9000, 1, 30, "9019", "GET", "/9019", begin + 16 * MS, begin + 46 * MS, [["cpu", 30]]]]
