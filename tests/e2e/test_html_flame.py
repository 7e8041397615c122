# SPDX-License-Identifier: Apache-2.0
"""The flame graph of a page: functions with their callers and callees, a comparison across a restart and an edit of the code, the stack
to paste. Rows of known times; figures are compared with these."""
import pytest

from agent import NO_ENGINE, plain_build
from answers import emptied, store_of_answers
from browser import NARROW, Keys
from test_window import Window, ago, window

pytestmark = plain_build(NO_ENGINE)
QUERY, LIBRARY = "query (/srv/db.py:7)", "call (/usr/lib/python3/dist-packages/gunicorn/base.py:9)"
ORDERS, PAY = [QUERY, "orders (/srv/app.py:14)", LIBRARY], [QUERY, "charge (/srv/bank.py:3)", "pay (/srv/app.py:23)", LIBRARY]
TREE = [QUERY, "walk (/srv/app.py:31)", "walk (/srv/app.py:31)", "walk (/srv/app.py:30)", LIBRARY]  # recursion
HOSTILE = "</script><img src=x onerror=window.owned=1> (/srv/app.py:1)"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with store_of_answers(tmp_path_factory.mktemp("flame")) as store:
        yield store


@pytest.fixture
def ask(shared):
    ask = Window(emptied(shared))
    ask.agent(-200_000, 300, trackers=["off_cpu_profile"])
    return ask


def opened(ask, browser, path, *arguments, width=1200):
    done = ask.command("offcpu", *arguments, "-o", str(path))
    assert (done.returncode, done.stderr) == (0, ""), done
    browser.open(path, width)
    return path


def levels(browser):
    """Names and widths in percent of each row of the graph, from the top."""
    rows = {}
    for frame in browser.all(".frame"):
        top = float(frame.value_of_css_property("top")[:-2])
        rows.setdefault(top, []).append((frame.get_attribute("data-name"), round(float(browser.script("return parseFloat(arguments[0].style.width)", frame)))))
    return [sorted(rows[top]) for top in sorted(rows)]


def press(browser, text):
    browser.script("arguments[0].click()", browser.button(text))


def check(browser, text):
    [label] = [l for l in browser.all("label") if l.text.startswith(text)]
    box = browser.one("input", label)
    browser.script("arguments[0].click()", box)
    return box.is_selected()


def test_a_function_has_its_callers_and_callees(ask, browser, tmp_path):
    for at, ms, stack in (10, 50, ORDERS), (20, 30, PAY), (30, 20, TREE), (40, 8, [HOSTILE, LIBRARY]):
        ask.off(at, ms, stack=stack, tid=at, host_tid=at)
    path = opened(ask, browser, tmp_path / "flame.html", "--service=shop", *window())
    table = browser.table("Functions")
    rows = {row[3]: row[:3] for row in browser.rows(table)}
    assert rows["query (/srv/db.py)"] == ["100.0", "92.6 %", "100.0"] and rows["pay (/srv/app.py)"] == ["30.0", "27.8 %", "0"]
    assert rows["walk (/srv/app.py)"] == ["20.0", "18.5 %", "0"] and not any("gunicorn" in name for name in rows)  # once, though it calls itself
    assert list(rows)[-1] == HOSTILE.replace(":1)", ")")
    assert check(browser, "functions of libraries") and any("gunicorn" in row[3] for row in browser.rows(browser.table("Functions")))
    press(browser, "query (/srv/db.py)")
    sleep, of = "clock_nanosleep [sleep]", "query (/srv/db.py)"
    drawn = levels(browser)
    assert drawn[-3:] == [[(f"callers of {of}", 100)], [(f"callees of {of}", 100)], [(sleep, 100)]], drawn
    assert drawn[-4] == [("charge (/srv/bank.py:3)", 30), ("orders (/srv/app.py:14)", 50), ("walk (/srv/app.py:31)", 20)], drawn
    assert browser.one(".flame + .status").text == f"callers of {of}: 100.0 ms, 92.6 % of what is shown"
    # a click zooms into callers, and the buttons take the frame from there
    [charge] = [f for f in browser.all(".frame") if f.get_attribute("data-name").startswith("charge")]
    browser.script("arguments[0].click()", charge)
    assert browser.one(".flame + .status").text.startswith("charge (/srv/bank.py:3): 30.0 ms, 27.8 % of what is shown, 30.0 % of what it calls")
    press(browser, "its callers and callees")
    assert [names for names in levels(browser) if len(names) > 1] == [] and "callees of charge (/srv/bank.py)" in str(levels(browser))
    browser.one(".flame").send_keys(Keys.ARROW_UP)  # a caller is above
    assert browser.one(".flame + .status").text.startswith("pay (/srv/app.py:23): 30.0 ms")
    press(browser, "from the root again")
    assert levels(browser)[0] == [("all", 100)] and len([b for b in browser.all(".controls button") if b.is_displayed()]) == 3
    browser.script("arguments[0].click()", next(b for b in browser.all("section button.link")[::-1] if b.text == HOSTILE.replace(":1)", ")")))
    assert browser.script("return window.owned") is None and "callers of </script><img" in browser.one(".flame + .status").text
    browser.check_quiet(path)


def test_a_stack_is_copied(ask, browser, tmp_path):
    ask.off(20, 30, stack=PAY)
    opened(ask, browser, tmp_path / "flame.html", "--service=shop", *window())
    browser.script("Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })")
    assert not browser.button("copy stack").is_enabled()
    [charge] = [f for f in browser.all(".frame") if f.get_attribute("data-name").startswith("charge")]
    browser.script("arguments[0].click()", charge)
    browser.button("copy stack").click()
    thread, *frames, said = browser.script("return window.copied").splitlines()
    assert thread == "worker" and frames == list(reversed(PAY[1:])) and said.startswith("charge (/srv/bank.py:3): 30.0 ms, 100.0 % of what is shown")
    assert browser.one(".flame + .status").text == "copied: 4 frames"


def test_a_comparison_across_a_restart(ask, browser, tmp_path):
    """Before and now are different processes: the frames of both are compared, and what is gone is drawn."""
    for at, ms, stack, pid in (-90, 60, ORDERS, 1), (-80, 40, PAY, 2), (10, 90, ORDERS, 3), (20, 10, TREE, 4):
        ask.off(at, ms, stack=stack, pid=pid, host_pid=100 + pid, tid=at % 99, host_tid=at % 99, name=f"pool-{pid}")
    arguments = "-p101,102,103,104", *window(), f"--against-since={ago(-100_000)}", f"--against-until={ago(0)}"
    opened(ask, browser, tmp_path / "restart.html", *arguments)
    assert levels(browser)[1:4] == [[("pool-*", 100)], [(LIBRARY, 100)],
                                    [("orders (/srv/app.py:14)", 75), ("pay (/srv/app.py:23)", 20), ("walk (/srv/app.py:30)", 5)]], levels(browser)
    labels = {f.get_attribute("data-name"): f.get_attribute("aria-label") for f in browser.all(".frame")}
    assert labels["orders (/srv/app.py:14)"].endswith("; before 60.0 ms, +30.0 ms (+50.0 %)"), labels
    assert "pay (/srv/app.py:23): 0 ms, 0.0 %" in labels["pay (/srv/app.py:23)"] and labels["pay (/srv/app.py:23)"].endswith("; before 40.0 ms, -40.0 ms (-100.0 %)")
    assert [row[:5] for row in browser.rows(browser.table("Functions"))][0] == ["0", "-40.0", "40.0", "0.0 %", "0"]  # pay, or what it calls
    browser.all("section input[type=search]")[0].send_keys("pay")
    assert browser.one(".matched").text == "matched: 0.0 %, before 40.0 %"
    assert not check(browser, "processes as one") and len(levels(browser)[1]) == 4
    browser.open(tmp_path / "restart.html", width=NARROW)
    assert browser.sideways() == 0


def test_a_comparison_across_an_edit(ask, browser, tmp_path):
    """Lines have moved, and the time before was twice as long: functions are compared, sums in proportion on demand."""
    moved = [QUERY, "orders (/srv/app.py:19)", LIBRARY]
    for at, ms, stack in (-90, 120, ORDERS), (10, 60, moved):
        ask.off(at, ms, stack=stack)
    arguments = "--service=shop", *window(), f"--against-since={ago(-100_000)}", f"--against-until={ago(0)}"
    opened(ask, browser, tmp_path / "edit.html", *arguments)
    label = lambda: next(f.get_attribute("aria-label") for f in browser.all(".frame") if f.get_attribute("data-name").startswith("orders"))
    assert label().startswith("orders (/srv/app.py): 60.0 ms") and label().endswith("; before 120.0 ms, -60.0 ms (-50.0 %)"), label()
    assert check(browser, "before in proportion") and label().endswith("; before 60.0 ms, +0 ms (+0.0 %)"), label()
    assert not check(browser, "lines of a function as one") and len(levels(browser)[3]) == 2
    ask.off(-80, 60, stack=moved)  # the line is in both: nothing moved
    opened(ask, browser, tmp_path / "same.html", *arguments)
    assert "lines of a function as one" in browser.text() and len(levels(browser)[3]) == 2


def test_the_words_of_a_frame_stay_on_the_screen(ask, browser, tmp_path):
    """Of a graph higher than the window, also while its upper frames are looked at."""
    ask.off(10, 50, stack=[f"f{i} (/srv/app.py:{i + 1})" for i in range(60)])
    opened(ask, browser, tmp_path / "deep.html", "--service=shop", *window())
    assert browser.script("return document.querySelector('.flame').getBoundingClientRect().bottom > innerHeight")
    assert browser.script("const r = document.querySelector('.flame + .status').getBoundingClientRect(); return r.bottom <= innerHeight && r.top > 0")
