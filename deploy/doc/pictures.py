#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`make pictures`: the pictures of reports.md, from real services: starts the five incidents of deploy/demo beside an agent with an embedded
store, drives their load, writes the reports, and photographs each in a headless Chromium. Needs root, Chromium and Selenium."""
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
UNDERSPAN = os.path.join(ROOT, "build/underspan")
DEMO = runpy.run_path(os.path.join(ROOT, "deploy/demo/incidents.py"))
SHOP = "/srv/shop"  # the path in the pictures
LARGEST = 150_000

# picture: (service, command, width, height, dark); FILE and SLOWEST are replaced
PICTURES = {
    "requests": ("lock", ["requests", "--html"], 1200, 660, False),
    "explain": ("gc", ["explain", "SLOWEST", "--html"], 1200, 790, True),
    "timeline": ("gc", ["timeline", "-o", "FILE"], 1200, 740, True),
    "phone": ("loop", ["explain", "SLOWEST", "--html"], 400, 860, False),
    "queue": ("queue", ["requests", "--html"], 1200, 560, True),
    "offcpu": ("lock", ["offcpu", "-o", "FILE"], 1200, 660, False),
    "gil": ("gil", ["gil", "--html"], 1200, 620, True),
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Shop:
    """The agent, the store and the services; all end with the program."""

    def __init__(self, directory):
        self.store, self.processes = os.path.join(directory, "store"), []
        self.agent = subprocess.Popen([UNDERSPAN, "run", f"--store={self.store}", "--flush_interval=1", "--request.min_duration_us=0",
                                       "--governor.cpu_percent=0"], stderr=subprocess.PIPE, text=True)
        while "ready" not in (line := self.agent.stderr.readline()):
            if not line:
                sys.exit("underspan run did not start: see `underspan doctor`")

    def ask(self, *command):
        done = subprocess.run([UNDERSPAN, *command, f"--store={self.store}"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"underspan {' '.join(command)}: {done.stderr}")
        return done.stdout

    def count(self, sql):
        return int(self.ask("sql", "--format=TabSeparated", sql))

    def drive(self, name):
        port = free_port()
        self.processes.append(DEMO["start"](name, port, SHOP))
        DEMO["until_watched"](port, self.count)
        DEMO["load"](name, port)

    def slowest(self, name):
        path = DEMO["INCIDENTS"][name][2]
        found = json.loads(self.ask("requests", "--since=10m", f"--service=shop-{name}", f"--path={path}", "--top=1", "--json"))
        return found["slowest"][0]["request_id"]

    def page(self, name, command, file):
        words = [self.slowest(name) if word == "SLOWEST" else file if word == "FILE" else word for word in command]
        choice = [] if command[0] == "explain" else ["--since=10m", f"--service=shop-{name}"]
        text = self.ask(*words, *choice)
        if "FILE" not in command:
            with open(file, "w") as out:
                out.write(text)

    def end(self):
        for process in self.processes + [self.agent]:
            process.terminate()
            process.wait(15)


def browser():
    options = webdriver.ChromeOptions()
    for flag in "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars":
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def photograph(driver, page, picture, width, height, dark):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
    driver.get(f"file://{page}")
    driver.save_screenshot(picture)
    if os.path.getsize(picture) > LARGEST:
        sys.exit(f"{picture} has more than {LARGEST} bytes: choose a smaller window")


def main():
    out = os.path.join(HERE, "pictures")
    if os.path.exists(SHOP):
        sys.exit(f"{SHOP} exists: the pictures' service would be there")
    directory = tempfile.mkdtemp(prefix="underspan-pictures.")
    os.chmod(directory, 0o711)  # the store's own user passes through
    os.makedirs(SHOP)
    shutil.copy(os.path.join(ROOT, "deploy/demo/incidents.py"), SHOP)
    shop = Shop(directory)
    try:
        for name in DEMO["INCIDENTS"]:
            shop.drive(name)
        time.sleep(15)  # sums are flushed every 10 s
        driver = browser()
        for picture, (name, command, *view) in PICTURES.items():
            page = os.path.join(directory, f"{picture}.html")
            shop.page(name, command, page)
            photograph(driver, page, os.path.join(out, f"{picture}.png"), *view)
        driver.quit()
    finally:
        shop.end()
        shutil.rmtree(SHOP)
        shutil.rmtree(directory)


main()
