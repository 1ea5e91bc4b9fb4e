#!/usr/bin/env python3
"""page.py URL FOLDER -- uses the page of drt-serve in headless Chromium like a user, with a hostile corpus.

Chromium is driven through its debugging pipe, so that no port is opened. Screenshots go to FOLDER. A failed check prints one
line, and the program leaves with 1.
"""
import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time


class Browser:
    """One page. Messages are JSON that ends with a NUL, on file descriptors 3 and 4 of the browser."""

    def __init__(self, profile):
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()

        def descriptors():
            os.dup2(to_browser, 30)
            os.dup2(from_browser, 31)
            os.dup2(30, 3)
            os.dup2(31, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--user-data-dir=" + profile,
             "--window-size=1300,1500", "--no-proxy-server", "about:blank"],
            preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.held, self.number, self.events = b"", 0, []
        self.session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def receive(self, until):
        while b"\0" not in self.held:
            if not select.select([self.into], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("Chromium did not answer")
            data = os.read(self.into, 1 << 20)
            if not data:
                raise EOFError("Chromium has ended")
            self.held += data
        line, self.held = self.held.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 40
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, seconds=40):
        until = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {expression}; state: {self.value('document.body.innerText')[:600]}")
            time.sleep(0.1)

    def key(self, name, code, text="", modifiers=0):
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if kind == "keyDown" and text else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name if name != " " else "Space",
                      windowsVirtualKeyCode=code, modifiers=modifiers, **extra)

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        try:
            self.call("Browser.close")
        except (OSError, EOFError, TimeoutError, RuntimeError):
            self.process.kill()
        self.process.wait(20)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def safe(page, when):
    """No text of the corpus was run or became markup."""
    check(page.value("window.hacked === undefined"), f"{when}: a script of the corpus ran")
    check(page.value("document.querySelectorAll('script, img, iframe, object, svg, a').length") == 1,
          f"{when}: markup of the corpus is in the page")
    for event in page.events:
        check(event["method"] != "Page.javascriptDialogOpening", f"{when}: a dialog was opened")
        check(event["method"] != "Runtime.exceptionThrown", f"{when}: {event}")
        check(event["method"] != "Log.entryAdded" or event["params"]["entry"]["level"] != "error", f"{when}: {event}")
        if event["method"] == "Network.requestWillBeSent":
            url = event["params"]["request"]["url"]
            check(url.startswith(sys.argv[1]) or url.startswith("about:"), f"{when}: a request to {url}")


def generate(page, folder):
    page.call("Page.navigate", url=sys.argv[1] + "/")
    page.wait("document.readyState === 'complete' && (document.getElementById('about') || {textContent: ''}).textContent.includes('parameters')")
    safe(page, "after loading")
    # With the keyboard alone: Tab reaches the prompt first.
    page.key("Tab", 9)
    check(page.value("document.activeElement.id") == "prompt", "Tab does not reach the prompt first")
    page.call("Input.insertText", text="The river <b>winds</b> <script>window.hacked = 1</script> " * 12)
    page.value("document.getElementById('tokens').value = 150; document.getElementById('temperature').value = 0")
    page.value("document.getElementById('source').value = 'both'")
    page.key("Enter", 13, "\r", modifiers=2)
    page.wait("document.querySelector('#state').textContent.includes('tokens,')")
    safe(page, "after generating")
    check(page.value("document.querySelectorAll('.part.has').length") >= 2, "the answer has no parts with neighbours")
    check(page.value("!document.getElementById('times').hidden && document.querySelectorAll('#times tbody tr').length") >= 5,
          "the times are missing")
    page.value("document.querySelector('.part.has').focus()")
    page.key("Enter", 13, "\r")
    page.wait("document.querySelectorAll('#read .source').length > 0")
    check(page.value("document.querySelector('.part.chosen').getAttribute('aria-pressed')") == "true", "the part is not marked")
    names = page.value("document.getElementById('read').textContent")
    check("score" in names and "weight" in names, f"what was read lacks its facts: {names[:200]}")
    safe(page, "after choosing a part")
    page.screenshot(os.path.join(folder, "generate.png"))


def search(page, folder):
    page.value("document.getElementById('query').focus()")
    page.call("Input.insertText", text="hostile")
    page.key("Enter", 13, "\r")
    page.wait("document.querySelectorAll('#hits li').length > 0")
    hits = page.value("document.getElementById('hits').textContent")
    check("<script>" in hits and "onerror" in hits, f"the hostile text is not shown as text: {hits[:300]}")
    safe(page, "after searching")
    page.value("document.querySelector('#hits button').click()")
    page.wait("!document.getElementById('document').hidden")
    check("<script>" in page.value("document.getElementById('document').textContent"), "the document is not shown as text")
    safe(page, "after reading a document")
    page.screenshot(os.path.join(folder, "search.png"))
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.screenshot(os.path.join(folder, "dark.png"))
    page.call("Emulation.setDeviceMetricsOverride", width=400, height=900, deviceScaleFactor=1, mobile=True)
    check(page.value("document.documentElement.scrollWidth <= 400"), "the page is wider than a narrow screen")
    page.screenshot(os.path.join(folder, "narrow.png"))


def stop(page):
    """Stop ends a stream, and the server's session with it."""
    page.value("document.getElementById('tokens').value = 4096; document.getElementById('temperature').value = 0; document.getElementById('start').click()")
    page.wait("document.getElementById('answer').textContent.length > 800")
    page.value("document.getElementById('stop').click()")
    page.wait("document.getElementById('state').textContent === 'stopped'")
    safe(page, "after stopping")


def main():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        page = Browser(profile)
        try:
            generate(page, sys.argv[2])
            search(page, sys.argv[2])
            stop(page)
        finally:
            page.close()


try:
    main()
except (AssertionError, TimeoutError, RuntimeError, EOFError, OSError) as error:
    print(f"page.py: {error}", file=sys.stderr)
    sys.exit(1)
