# SPDX-License-Identifier: Apache-2.0
"""Choice and identity of the server: connections, fail-over, names, TLS."""
import random
import re
import socket
import subprocess
import time

import pytest

import fault_proxy as fault
from delivery import Sender, database, proxy, sender, store  # noqa: F401: fixtures
from host import wait_until

pytestmark = pytest.mark.engine


def test_one_connection_for_all(proxy, sender, database):
    sender("--rows=20011", "--batch_rows=500").end()
    assert len(proxy.inserts()) >= 41 and proxy.connections == 1
    assert all(r.query["async_insert"] == "0" and r.headers["content-encoding"] == "gzip" for r in proxy.inserts())
    database.check(20011)


def test_next_server_when_one_fails(store, proxy, sender, database, cleanup):
    other = fault.FaultProxy(store.address)
    cleanup.append(other)
    bad = []
    proxy.plan = lambda request: fault.exception(242) if bad else None
    s = sender("--rows=6007", "--rate=3000", "--batch_rows=300", "--wait=10", url=f"{proxy.url},{other.url}")
    wait_until(lambda: len(proxy.inserts()) > 3, 10, "some inserts")
    assert not other.requests
    bad.append(True)
    wait_until(lambda: len(other.inserts()) > 3, 10, "inserts into the other")
    other.close()
    bad.clear()
    s.end()
    database.check(6007)
    assert s.stderr.count("from now on") >= 2
    assert not other.failures


@pytest.mark.parametrize("fault_there", [fault.exception(60, status=404), fault.exception(516, status=403), fault.answer(404)])
def test_next_server_when_one_is_not_set_up(fault_there, store, proxy, sender, database, cleanup):
    """No such table, user or path at the first server, to be mended by an operator; the second server has all."""
    other = fault.FaultProxy(store.address)
    cleanup.append(other)
    proxy.plan = lambda request: fault_there
    s = sender("--rows=2003", "--batch_rows=300", "--wait=10", url=f"{proxy.url},{other.url}")
    s.end()
    database.check(2003)
    assert len(proxy.inserts()) == 1 and "will try again" in s.stderr and f"from now on {other.url}" in s.stderr
    assert not other.failures


def test_servers_that_come_and_go(store, proxy, sender, database, cleanup):
    """Both fail in many ways, by turns; the same rows may be sent to either."""
    rng, other = random.Random(7), fault.FaultProxy(store.address)
    cleanup.append(other)
    faults = [fault.answer(503), fault.lose_reply, fault.half_a_reply, fault.exception(242), fault.exception(60, status=404),
              fault.reset_at(101), fault.cut_off_at(101), None, None, None, None, None]
    proxy.plan = other.plan = lambda request: rng.choice(faults) if len(proxy.requests) + len(other.requests) < 31 else None
    sender("--rows=10007", "--rate=5000", "--batch_rows=300", "--wait=60", url=f"{proxy.url},{other.url}").end(timeout=70)
    database.check(10007)
    assert proxy.inserts() and other.inserts() and not other.failures


def test_name_that_moves(store, database, tmp_path, cleanup):
    """DNS: the old server goes away, the name gets a new address."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.2 clickhouse.test\n")
    old = fault.FaultProxy(store.address, host="127.0.0.2")
    new = fault.FaultProxy(store.address, host="127.0.0.3", port=old.address[1])
    cleanup += [old, new]
    s = Sender(f"http://clickhouse.test:{old.address[1]}", database, "--rows=4001", "--rate=2000", "--batch_rows=200", "--wait=10",
               prefix=["unshare", "--mount", "sh", "-c", f'mount --bind "{hosts}" /etc/hosts && exec "$@"', "sh"])
    cleanup.append(s)
    wait_until(lambda: len(old.inserts()) > 2, 10, "some inserts")
    hosts.write_text("127.0.0.3 clickhouse.test\n")
    old.close()
    s.end()
    database.check(4001)
    assert new.inserts() and not old.failures + new.failures


def test_name_server_that_is_silent(database, tmp_path, cleanup):
    """A look-up that hangs for a minute delays neither the next attempt nor the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        try:
            silent.bind(("127.9.9.9", 53))
        except OSError as e:
            pytest.skip(f"port 53 is somebody's here: {e}")
        resolv, hosts = tmp_path / "resolv.conf", tmp_path / "nsswitch.conf"
        resolv.write_text("nameserver 127.9.9.9\noptions timeout:30 attempts:2\n")
        hosts.write_text("hosts: dns\n")
        s = Sender("http://clickhouse.invalid.:8123", database, "--rows=1009", "--hold", "--clickhouse_connect_timeout=1",
                   spool=tmp_path / "spool", prefix=["unshare", "--mount", "sh", "-c",
                                                     f'mount --bind "{resolv}" "$(readlink -f /etc/resolv.conf)" && '
                                                     f'mount --bind "{hosts}" /etc/nsswitch.conf && exec "$@"', "sh"])
        cleanup.append(s)
        wait_until(lambda: "will try again" in s.stderr, 10, "a first failure")
        assert re.search("[Rr]esolv|time", s.stderr), s.stderr
        silent.settimeout(5)
        silent.recv(512)  # the query came to this name server
        begin = time.monotonic()
        counts = s.terminate().end()
        assert time.monotonic() - begin < 5 and counts["spooled"] == 1009


# ---- TLS ----

def openssl(*arguments, cwd):
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority with a good and an expired server certificate, and a client's certificate."""
    d = tmp_path_factory.mktemp("tls")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-days", "2", "-subj", "/CN=test authority", cwd=d)
    (d / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, days in ("server", 2), ("expired", 0), ("client", 2):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}", cwd=d)
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem",
                "-days", str(days), "-extfile", "names", cwd=d)
        (d / f"{name}.both").write_text((d / f"{name}.pem").read_text() + (d / f"{name}.key").read_text())
    return d


def test_tls(store, database, certificates, cleanup):
    """With a CA file, the client's certificate, and the server's name in the greeting."""
    d, names = certificates, []
    p = fault.FaultProxy(store.address, tls=fault.tls_context(d / "server.pem", d / "server.key", d / "ca.pem", names))
    cleanup.append(p)
    s = Sender(p.url.replace("127.0.0.1", "localhost"), database, "--rows=1009", f"--clickhouse_ca_file={d}/ca.pem",
               f"--clickhouse_cert_file={d}/client.pem", f"--clickhouse_key_file={d}/client.key")
    cleanup.append(s)
    s.end()
    database.check(1009)
    assert set(names) == {"localhost"}


@pytest.mark.parametrize("what, said", [("expired", "expired|certificate"), ("unknown", "certificate"), ("no client", "will try again")])
def test_tls_refused(what, said, store, database, certificates, tmp_path, cleanup):
    """Nothing is sent to a wrong server; the rows wait for a good certificate."""
    d = certificates
    time.sleep(1.1 if what == "expired" else 0)  # a certificate of zero days ends within the second of the creation
    bad = "expired" if what == "expired" else "server"
    p = fault.FaultProxy(store.address, tls=fault.tls_context(d / f"{bad}.pem", d / f"{bad}.key", d / "ca.pem" if what == "no client" else None))
    cleanup.append(p)
    ca = [] if what == "unknown" else [f"--clickhouse_ca_file={d}/ca.pem"]
    s = Sender(p.url, database, "--rows=1009", "--wait=1", *ca, spool=tmp_path / "spool")
    cleanup.append(s)
    assert s.end()["spooled"] == 1009
    assert re.search(said, s.stderr), s.stderr
    assert not p.requests
    s = Sender(store.url, database, "--rows=0", spool=tmp_path / "spool")
    cleanup.append(s)
    s.end()
    database.check(1009)


def test_certificates_that_are_renewed(store, database, certificates, tmp_path, cleanup):
    """The server's certificate expires and is replaced, signed by a new authority: rows wait until the agent's file contains the
    new authority; no restart or signal is needed."""
    d, new = certificates, tmp_path
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "new.key", "-out", "new.pem",
            "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", cwd=new)
    ca = new / "ca.pem"
    ca.write_bytes((d / "ca.pem").read_bytes())
    p = fault.FaultProxy(store.address, tls=fault.tls_context(d / "server.pem", d / "server.key"))
    cleanup.append(p)
    s = Sender(p.url, database, "--rows=10007", "--rate=3000", "--batch_rows=300", "--wait=30", f"--clickhouse_ca_file={ca}",
               spool=new / "spool")
    cleanup.append(s)
    wait_until(lambda: len(p.inserts()) > 3, 10, "some inserts")
    time.sleep(1.1)  # a certificate of zero days ends within the second of the creation
    p.tls = fault.tls_context(d / "expired.pem", d / "expired.key")
    for connection in list(p.open):
        connection.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: "will try again" in s.stderr, 10, "that it is told")
    n = len(p.inserts())
    p.tls = fault.tls_context(new / "new.pem", new / "new.key")
    time.sleep(1)
    assert len(p.inserts()) == n
    ca.write_bytes((new / "new.pem").read_bytes())
    s.end(timeout=40)
    database.check(10007)
    assert not p.failures
