# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a window: opens a report, clicks, and returns contents, requests and errors of the page."""
import json

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

WIDE, NARROW = 1200, 400


class Browser:
    def __init__(self):
        options = webdriver.ChromeOptions()
        for flag in "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run":
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))

    def open(self, path, width=WIDE):
        self.driver.set_window_size(width, 900)
        self.driver.get_log("performance")
        self.driver.get(f"file://{path}")
        assert self.all("main"), self.driver.page_source[:500]
        self.check_quiet(path)

    def check_quiet(self, path):
        """No error, no refused script, and no request except for the file."""
        assert self.driver.get_log("browser") == []
        sent = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = {m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"}
        assert urls <= {f"file://{path}"}, urls

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def all(self, selector, within=None):
        return (within or self.driver).find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector, within=None):
        [element] = self.all(selector, within)
        return element

    def button(self, text):
        [button] = [b for b in self.all("button") if b.text.startswith(text)]
        return button

    def table(self, heading):
        """The first table of the section with the given heading."""
        [section] = [s for s in self.all("section") if self.all("h2", s)[0].text == heading]
        return self.all("table", section)[0]

    def rows(self, table):
        return [[cell.text for cell in self.all("td", row)] for row in self.all("tbody > tr", table)]

    def text(self):
        return self.one("main").text

    def sideways(self):
        """Pixels by which the page is wider than the window."""
        return self.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def quit(self):
        self.driver.quit()


__all__ = ["Browser", "Keys", "NARROW", "WIDE"]
