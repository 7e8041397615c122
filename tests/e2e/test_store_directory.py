# SPDX-License-Identifier: Apache-2.0
"""The store's directory: the store touches only own files, questions change nothing, and root trusts nothing of the engine's
user."""
import http.server
import os
import pathlib
import pwd
import shutil
import socket
import stat
import subprocess
import threading
import time

import pytest

import host
from agent import NO_ENGINE, plain_build
from store_fixture import STORE, TABLE, UNDERSPAN, Store, made, tree, underspan

pytestmark = [pytest.mark.engine, plain_build(NO_ENGINE)]

MARKER = "underspan-store"
ENGINE_USER = next(pwd.getpwnam(n) for n in ("underspan", "nobody") if n in {p.pw_name for p in pwd.getpwall()})


def small_etc(path):
    (path / "ssh").mkdir(parents=True)
    path.chmod(0o755)
    for name, mode in (("passwd", 0o644), ("shadow", 0o600), ("ssh/ssh_host_key", 0o600)):
        (path / name).write_text(f"what is in {name}\n")
        (path / name).chmod(mode)
    return path


def etc_like(path):
    return small_etc(path / "etc")


def home(path):
    small_etc(path / "home")
    daemon = pwd.getpwnam("daemon")
    for p in [path / "home", *(path / "home").rglob("*")]:
        os.chown(p, daemon.pw_uid, daemon.pw_gid)
    return path / "home"


def link(path):
    made(path / "db")
    (path / "link").symlink_to("db")
    return path / "link"


def link_with_slash(path):
    return str(link(path)) + "/"


def old_with_one_file_more(path):
    (as_before(made(path / "db")) / "notes.txt").write_text("mine\n")
    return path / "db"


def old_without_password(path):
    (as_before(made(path / "db")) / "password").unlink()
    return path / "db"


def old_of_another_user(path):
    daemon = pwd.getpwnam("daemon")
    as_before(made(path / "db"))
    for p in [path / "db", *(path / "db").rglob("*")]:
        os.lchown(p, daemon.pw_uid, daemon.pw_gid)
    return path / "db"


def marker_is(what):
    def make(path):
        target = small_etc(path / "etc") / MARKER
        if what == "fifo":
            os.mkfifo(target)
        elif what == "link":
            (path / "elsewhere").write_text("underspan store 2\n")
            target.symlink_to(path / "elsewhere")
        elif what == "hard link":
            (path / "elsewhere").write_text("underspan store 2\n")
            target.hardlink_to(path / "elsewhere")
        elif what == "directory":
            target.mkdir()
        elif what == "other text":
            target.write_text("underspan store 2\nand more\n")
        elif what == "another user's":
            target.write_text("underspan store 2\n")
            os.chown(target, ENGINE_USER.pw_uid, -1)
        elif what == "writable":
            target.write_text("underspan store 2\n")
            target.chmod(0o666)
        return path / "etc"
    make.__name__ = "marker_is_" + what
    return make


def others_write(path):
    made(path / "db").chmod(0o777)
    return path / "db"


@pytest.mark.parametrize("make", [
    etc_like, home, link, link_with_slash, others_write, old_with_one_file_more, old_without_password, old_of_another_user,
    *map(marker_is, ("fifo", "link", "hard link", "directory", "other text", "another user's", "writable"))])
def test_what_is_not_ours_is_left_alone(tmp_path, make):
    given = make(tmp_path)
    before = tree(tmp_path)
    for command in (["sql", f"--store={given}", "SELECT 1"], ["explain", f"--store={given}", "0" * 32],
                    ["doctor", f"--store={given}"], ["schema", "--apply", f"--store={given}"],
                    ["run", f"--store={given}", "--trackers=gc_pause", "--duration=1"], ["store", f"--path={given}", "--listen=127.0.0.1:0"]):
        done = underspan(*command)
        assert done.returncode in (1, 2), command
        assert str(given) in done.stdout + done.stderr, command
        assert tree(tmp_path) == before, command


@pytest.mark.parametrize("given", ["/", "/etc", "/usr", "/root", "/tmp", "/proc", "/dev", "/etc/passwd"])
def test_the_system_is_left_alone(given):
    path = pathlib.Path(given)
    names = sorted(os.listdir(path)) if path.is_dir() else None
    before = path.stat()
    for command in (["sql", f"--store={given}", "SELECT 1"], ["store", f"--path={given}", "--listen=127.0.0.1:0"]):
        done = underspan(*command)
        assert done.returncode in (1, 2) and given in done.stderr, done.stderr
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    if given not in ("/tmp", "/proc", "/dev"):
        assert after.st_ctime_ns == before.st_ctime_ns
        assert names == (sorted(os.listdir(path)) if names else None)
    assert not (path / MARKER).exists() and not (path / "lock").exists()


def test_asking_makes_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    before = tree(tmp_path)
    for name in ("missing", "no/parent", "empty"):
        given = tmp_path / name
        for command in (["sql", f"--store={given}", "SELECT 1"], ["explain", f"--store={given}", "0" * 32],
                        ["doctor", f"--store={given}"], ["schema", f"--store={given}"]):
            done = underspan(*command)
            if command[0] != "schema":  # prints the statements without a database
                assert done.returncode == 1, done.stdout
                said = done.stdout + done.stderr
                assert f"no store at {given}" in said and f"--store={given}" in said
            assert tree(tmp_path) == before


def test_an_empty_directory_of_ours_is_taken(tmp_path):
    """Unchanged: neither mode nor owner differ. A directory of a different user, or writable by different
    users, is refused."""
    mine, others, open_one, for_all = (tmp_path / name for name in ("mine", "others", "open", "for all"))
    for p, mode in ((mine, 0o755), (others, 0o700), (open_one, 0o777), (for_all, 0o1777)):
        p.mkdir()
        p.chmod(mode)
    os.chown(others, pwd.getpwnam("daemon").pw_uid, -1)
    before = tree(others), tree(open_one), tree(for_all)
    with Store(mine) as s:
        assert s.ask("SELECT 1") == "1\n"
    st = mine.stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid) == (0o755, os.getuid())
    for given in (others, open_one):
        with pytest.raises(RuntimeError, match="exit 2: .*" + str(given)):
            Store(given)
    # the mode of a directory as /tmp stays
    with pytest.raises(RuntimeError, match="(?!.*chmod).*for all is a directory for all users: name a new one"):
        Store(for_all)
    assert (tree(others), tree(open_one), tree(for_all)) == before


def test_several_start_at_once(tmp_path):
    """On a directory that is not there: one serves, the others say so; none takes the beginning of another for foreign files."""
    said = []
    for i in range(4):
        starting = [subprocess.Popen([UNDERSPAN, "store", f"--path={tmp_path}/db{i}", "--listen=127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
                    for _ in range(4)]
        host.wait_until(lambda: sum(p.poll() is None for p in starting) <= 1, 20, "the end of all but one")
        for p in starting:
            if p.poll() is None:
                p.terminate()
                assert p.wait(10) == 0
            else:
                said.append(p.stderr.read())
                assert p.returncode == 1 and "another store process serves" in said[-1], said[-1]
    assert len(said) == 12


def test_a_store_killed_in_its_first_moment(tmp_path):
    """The marker was being written."""
    (tmp_path / "db").mkdir(mode=0o700)
    (tmp_path / "db" / f"{MARKER}.new").write_text("under")
    asked = underspan("sql", f"--store={tmp_path}/db", "SELECT 1")
    assert asked.returncode == 1 and "the directory is empty" in asked.stderr, asked.stderr
    with Store(tmp_path / "db") as s:
        assert s.ask("SELECT 1") == "1\n"
    assert not (tmp_path / "db" / f"{MARKER}.new").exists()


def as_before(path, owner=ENGINE_USER):
    """As left by version 0.1: no marker, the engine's files in the directory proper, all owned by a single user."""
    for p in [*(path / "engine").iterdir()]:
        p.rename(path / p.name)
    (path / "engine").rmdir()
    (path / "status").write_text("PID: 1\n")  # was killed
    (path / MARKER).unlink()
    (path / "socket").unlink(missing_ok=True)
    for p in [path, *path.rglob("*")]:
        os.lchown(p, owner.pw_uid, owner.pw_gid)
    path.chmod(0o700)
    return path


@pytest.mark.parametrize("owner", ["the engine's user", "killed", "root"])
def test_a_store_of_an_earlier_version_opens(tmp_path, owner):
    with Store(tmp_path / "db") as s:
        s.ask(TABLE.format("t"))
        s.ask("INSERT INTO t VALUES (1, 'kept')")
        s.ask("CREATE DATABASE other")
        s.ask("CREATE TABLE other.u ENGINE = MergeTree ORDER BY a AS SELECT 7 AS a")
        password = s.password
        s.kill() if owner == "killed" else s.stop()
    as_before(tmp_path / "db", ENGINE_USER if owner != "root" else pwd.getpwuid(0))
    if owner != "root":
        # a store of version 0.1 is running and holds the lock
        with open(tmp_path / "db/lock", "r+") as lock:
            holder = subprocess.Popen(["/usr/bin/python3", "-c", "import fcntl,sys,time; fcntl.lockf(0, fcntl.LOCK_EX);"
                                       "print('held', flush=True); time.sleep(60)"], stdin=lock, stdout=subprocess.PIPE)
            assert holder.stdout.readline() == b"held\n"
            before = tree(tmp_path / "db")
            done = underspan("sql", f"--store={tmp_path}/db", "SELECT 1")
            assert done.returncode == 1 and "earlier version" in done.stderr
            assert tree(tmp_path / "db") == before
            holder.kill()
            holder.wait()
    for _ in range(2):
        done = underspan("sql", f"--store={tmp_path}/db", "SELECT s, (SELECT a FROM other.u) AS u FROM t")
        assert (done.returncode, done.stdout) == (0, "s\tu\nkept\t7\n"), done.stderr
    assert (tmp_path / "db/password").read_text().strip() == password
    assert {p.lstat().st_uid for p in (tmp_path / "db/engine").rglob("*")} == {ENGINE_USER.pw_uid}
    for name in ("", MARKER, "lock", "password"):
        assert (tmp_path / "db" / name).stat().st_uid == 0


def test_an_earlier_version_ran_on_it(tmp_path):
    """Version 0.1 gives all files to the engine's user and begins an engine beside engine/: no rows are ignored in
    silence, and the sentence has the remedy."""
    with Store(tmp_path / "older") as s:
        s.ask("CREATE TABLE older ENGINE = MergeTree ORDER BY a AS SELECT 1 AS a")
        s.kill()
    with Store(tmp_path / "db") as s:
        s.ask("CREATE TABLE newer ENGINE = MergeTree ORDER BY a AS SELECT 2 AS a")
        s.kill()
    for p in (tmp_path / "older" / "engine").iterdir():
        p.rename(tmp_path / "db" / p.name)
    for p in [tmp_path / "db", *(tmp_path / "db").rglob("*")]:
        os.lchown(p, ENGINE_USER.pw_uid, ENGINE_USER.pw_gid)
    before = tree(tmp_path / "db")
    done = underspan("sql", f"--store={tmp_path}/db", "SELECT 1")
    assert done.returncode == 2 and "an earlier version of underspan ran on" in done.stderr
    assert tree(tmp_path / "db") == before
    way_out = done.stderr[done.stderr.index("(cd ") + 1:done.stderr.rindex(")")].replace("OTHER", str(tmp_path / "other"))
    subprocess.run(["/bin/sh", "-ec", way_out], check=True)
    for store, table, a in (("db", "newer", 2), ("other", "older", 1)):
        done = underspan("sql", f"--store={tmp_path}/{store}", f"SELECT a FROM {table}")
        assert (done.returncode, done.stdout) == (0, f"a\n{a}\n"), done.stderr


@pytest.mark.parametrize("name", ["lock", "password", "endpoint"])
@pytest.mark.parametrize("what", ["fifo", "link", "hard link", "another user's"])
def test_files_that_are_not_the_stores(tmp_path, name, what):
    """Neither followed, nor waited for, nor trusted: the result is one sentence, soon."""
    file = made(tmp_path / "db") / name
    secret = tmp_path / "secret"
    secret.write_text("x" * 32 + "\n")
    if name != "endpoint":
        file.unlink()
    if what == "fifo":
        os.mkfifo(file)
    elif what == "link":
        file.symlink_to(secret)
    elif what == "hard link":
        file.hardlink_to(secret)
    else:
        file.write_text("x" * 32 + "\n")
        os.chown(file, ENGINE_USER.pw_uid, -1)
    start = time.monotonic()
    done = underspan("sql", f"--store={tmp_path}/db", "SELECT 1 AS a")
    assert time.monotonic() - start < 20
    if name == "endpoint":  # only files written by a running store count
        assert done.stdout == "a\n1\n", done.stderr
    else:
        assert done.returncode != 0 and f"db/{name}" in done.stderr and done.stdout == ""
    assert secret.read_text() == "x" * 32 + "\n"


def test_the_password_goes_to_the_store_only(tmp_path):
    """The endpoint's address was taken over by a different program: the store that holds the lock is asked all the
    same."""
    seen = []

    class Thief(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(dict(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Thief) as thief, Store(tmp_path / "db") as s:
        threading.Thread(target=thief.serve_forever, daemon=True).start()
        (tmp_path / "db/endpoint").write_text(f"http://127.0.0.1:{thief.server_address[1]}\n")
        done = underspan("sql", f"--store={tmp_path}/db", "SELECT 1 AS a")
        assert done.stdout == "a\n1\n", done.stderr
        assert s.stop() == 0
        thief.shutdown()
    assert not seen


def test_endpoint_is_the_url(tmp_path):
    with Store(tmp_path / "db") as s:
        assert (tmp_path / "db/endpoint").read_text() == s.url + "\n"
        done = subprocess.run(["sh", "-c", f'curl -sS -u default:$(cat {tmp_path}/db/password) --data-binary "SELECT 1" '
                               f'"$(cat {tmp_path}/db/endpoint)"'], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("1\n", "")


def has_landlock():
    """ABI 4, Linux 6.7: files and TCP. 444: landlock_create_ruleset, also on arm64."""
    import ctypes
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 4


def test_what_the_engine_may_touch(tmp_path):
    """With the password, through the engine's own functions: below engine/, and nothing of the rest of the machine."""
    if not has_landlock():
        pytest.skip("this kernel has no Landlock for TCP")
    for p in [tmp_path, *tmp_path.parents]:
        if p.name.startswith("pytest") or p == tmp_path:
            p.chmod(0o755)
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)
    (public / "readable").write_text("for all\n")
    (public / "readable").chmod(0o666)
    program = public / "program"
    program.write_text(f"#!/bin/sh\ntouch {public}/executed; echo 1\n")
    program.chmod(0o755)
    with socket.socket() as listener, Store(tmp_path / "db") as s:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.2)
        s.ask(f"CREATE TABLE f (a UInt8) ENGINE = File(TSV, '{public}/table')")
        for sql in (f"SELECT * FROM file('{public}/readable', 'LineAsString')", "SELECT * FROM file('/etc/passwd', 'LineAsString')",
                    f"INSERT INTO FUNCTION file('{public}/written', 'TSV', 'a UInt8') VALUES (1)",
                    f"INSERT INTO FUNCTION file('{public}/readable', 'TSV', 'a UInt8') VALUES (1)",
                    f"SELECT * FROM file('{s.path}/password', 'LineAsString')",
                    f"INSERT INTO FUNCTION file('{s.path}/endpoint', 'LineAsString', 'a String') VALUES ('http://127.0.0.1:1')",
                    f"SELECT * FROM sqlite('{public}/made.db', 't')", f"SELECT * FROM executable('{program}', TSV, 'a UInt8')",
                    "INSERT INTO f VALUES (1)", "SELECT * FROM f",
                    "SELECT * FROM url('http://127.0.0.1:%d/', 'LineAsString') SETTINGS http_max_tries = 1" % listener.getsockname()[1],
                    "SELECT * FROM remote('127.0.0.1:%d', system.one)" % listener.getsockname()[1]):
            assert s.request(body=sql.encode()).status >= 400, sql
        with pytest.raises(TimeoutError):
            listener.accept()
        assert sorted(p.name for p in public.iterdir()) == ["program", "readable"]
        assert (public / "readable").read_text() == "for all\n"
        assert (s.path / "endpoint").read_text() == s.url + "\n"
        assert s.ask("SELECT 1") == "1\n"
