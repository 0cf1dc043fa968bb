"""Chromium through its own protocol on a pair of pipes: pictures of a page that is served, at any
width, light or dark. A window cannot be as narrow as a telephone, and a page that forbids frames
cannot be put into one.
"""

import base64
import json
import os
import select
import subprocess
import time

ANSWER_S_MAX = 60


class Browser:
    """A headless Chromium that keeps its profile in `folder`."""

    def __init__(self, folder):
        commands, self.commands = os.pipe()
        self.messages, messages = os.pipe()
        command = ["chromium", "--headless", "--disable-gpu", "--hide-scrollbars",
                   "--no-first-run", f"--user-data-dir={folder}/chromium-pipe",
                   "--remote-debugging-pipe"]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium refuses to start as root with it.

        def take_pipes():
            # Chromium reads commands from descriptor 3 and writes to 4. First out of their way.
            high = [os.dup(descriptor) for descriptor in (commands, messages)]
            high = [os.dup2(descriptor, 100 + i) for i, descriptor in enumerate(high)]
            for descriptor, place in zip(high, (3, 4)):
                os.dup2(descriptor, place)

        self.process = subprocess.Popen(command, preexec_fn=take_pipes, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(messages)
        self.rest, self.last, self.session = b"", 0, None
        self.handlers = {}
        """Functions that are called with the parameters of an event, by its name."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=15)
        os.close(self.commands)
        os.close(self.messages)

    def send(self, method, **parameters):
        """Sends a command, and returns its number without waiting for its result."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        return self.last

    def call(self, method, **parameters):
        """Sends a command and returns its result. Events that arrive before it are handled."""
        number = self.send(method, **parameters)
        until = time.monotonic() + ANSWER_S_MAX
        while True:
            answer = self._next(until)
            if answer.get("id") == number:
                if "error" in answer:
                    raise TimeoutError(f"{method}: {answer['error']}")
                return answer["result"]
            handler = self.handlers.get(answer.get("method"))
            if handler:
                handler(answer["params"])

    def _next(self, until):
        while b"\0" not in self.rest:
            if not select.select([self.messages], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium did not answer within {ANSWER_S_MAX} s")
            self.rest += os.read(self.messages, 1 << 20)
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, width, dark):
        """Opens an empty page."""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.session = session
        self.look(width, dark)

    def look(self, width, dark):
        """Sets width and colours of the page."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def wait_for(self, expression):
        """Waits until the expression is true in the page."""
        until = time.monotonic() + ANSWER_S_MAX
        while not self.evaluate(expression):
            if time.monotonic() > until:
                raise TimeoutError(f"this did not become true: {expression}")
            time.sleep(0.1)

    def save_picture(self, path, width, height_max=None):
        """Saves a picture of the whole page, or of its beginning."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        height = min(size["height"], height_max or size["height"])
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def photograph(self, url, path, width, dark, shown, height_max=None):
        """Saves the page at `url` when the expression `shown` has become true."""
        self.open(width, dark)
        self.call("Page.navigate", url=url)
        self.wait_for(shown)
        self.save_picture(path, width, height_max)

    def evaluate(self, expression):
        """Returns the value of an expression in the page; of a promise, when it is settled."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")
