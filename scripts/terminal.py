"""A terminal for pictures: runs programs in tmux, notes what its screen shows, and draws it as SVG.

tmux is the terminal, so that colours, line breaks and the cursor are those of a real one. A drawn
character keeps its cell with any font (`textLength`); blocks and lines are drawn as shapes, because
in most fonts they leave gaps. Light or dark follows the reader's setting.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from html import escape

CELL_WIDTH, CELL_HEIGHT, BASELINE, MARGIN = 8.4, 18, 13.5, 16
"""Of the drawing, in px: a cell, the text's baseline in it, and the space around all cells."""
BLOCKS = " ▁▂▃▄▅▆▇█"
SHADES = {"░": 0.2, "▒": 0.5}
LINES = {"━": 3, "─": 1}
KEY_S = 0.035
SAMPLE_S = 0.05
END_S_MAX = 15
PROMPT = "\n$ "
"""Below an empty line, because a response need not end with a line feed."""
COLOURS = {
    "red": ("#b3261e", "#ff8f87"),
    "green": ("#1a7f37", "#5fcf9f"),
    "yellow": ("#b7791f", "#e0a84a"),
    "cyan": ("#0e7480", "#56c2cf"),
    "text": ("#1c2024", "#e4e7ea"),
    "back": ("#f6f8fa", "#14171a"),
    "edge": ("#d0d7de", "#363c43"),
}
"""Of the drawing, on a light and a dark page."""
SGR_COLOURS = {31: "red", 32: "green", 33: "yellow", 36: "cyan"}
"""Those of Hotrow's display and log."""


class Terminal:
    """A shell in a tmux server of its own; `with` ends both."""

    def __init__(self, columns, rows, folder, path):
        self.columns, self.rows = columns, rows
        self.frames = []
        self.began = None
        self._socket = os.path.join(folder, "tmux")
        config = os.path.join(folder, "tmux.conf")
        with open(config, "w") as file:
            file.write("set -g status off\nset -g default-terminal tmux-256color\n")
        shell = ["env", "-i", f"PATH={path}", f"HOME={folder}", f"TMPDIR={folder}", "LANG=C.UTF-8",
                 "TERM=tmux-256color", f"PS1={PROMPT}", "bash", "--norc", "--noprofile"]
        self._tmux("-f", config, "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c",
                   folder, shlex.join(shell))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Ends everything that was started in the terminal: first by SIGTERM, because a service may
        ignore the hang-up of its terminal.
        """
        deadline = time.monotonic() + END_S_MAX
        while programs := self._programs():
            for program in programs:
                late = time.monotonic() > deadline
                with contextlib.suppress(ProcessLookupError):
                    os.kill(program, signal.SIGKILL if late else signal.SIGTERM)
            time.sleep(0.5)
        self._tmux("kill-server", check=False)

    def _programs(self):
        """Returns the processes of the shell's session, without the shell."""
        shell = int(self._tmux("display-message", "-p", "#{pane_pid}", check=False) or 0)
        programs = []
        for program in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(ProcessLookupError):
                if shell and os.getsid(int(program)) == shell != int(program):
                    programs.append(int(program))
        return programs

    def _tmux(self, *words, check=True):
        environment = {**os.environ, "LANG": "C.UTF-8"}
        return subprocess.run(["tmux", "-S", self._socket, *words], check=check, text=True,
                              capture_output=True, env=environment, timeout=10).stdout

    def screen(self):
        """Returns the rows with escape codes, and the cursor's column and row, or None when hidden.
        """
        text = self._tmux("capture-pane", "-e", "-p", ";", "display-message", "-p",
                          "#{cursor_x} #{cursor_y} #{cursor_flag}")
        *rows, cursor = text.split("\n")[: self.rows + 1]
        column, row, shown = map(int, cursor.split())
        return tuple(rows), (column, row) if shown else None

    def text(self):
        return re.sub("\x1b\\[[0-9;]*m", "", "\n".join(self.screen()[0]))

    def _sample(self):
        """Notes the screen with its time, if it changed and no program is in the middle of it."""
        screen = self.screen()
        time.sleep(SAMPLE_S / 2)
        if screen == self.screen() and (not self.frames or self.frames[-1][1] != screen):
            now = time.monotonic()
            self.began = self.began or now
            self.frames.append((now - self.began, screen))

    def pause(self, seconds):
        """Lets `seconds` pass."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._sample()
            time.sleep(SAMPLE_S / 2)

    def until(self, condition, seconds_max):
        """Waits until `condition` holds for the text of the screen."""
        end = time.monotonic() + seconds_max
        while not condition(self.text()):
            if time.monotonic() > end:
                raise TimeoutError(f"the terminal did not show what was expected:\n{self.text()}")
            self._sample()
            time.sleep(SAMPLE_S / 2)

    def run(self, command, seconds_max=10):
        """Types a command, and waits for the next prompt."""
        self.type(command)
        self.await_prompt(seconds_max)

    def again(self, commands_back, seconds_max=10):
        """Repeats an earlier command from the shell's history."""
        for _ in range(commands_back):
            self.key("Up")
            self.pause(0.4)
        self.key("Enter")
        self.await_prompt(seconds_max)

    def await_prompt(self, seconds_max=10):
        last = PROMPT.strip()
        self.until(lambda text: text.rstrip().rsplit("\n", 1)[-1] == last, seconds_max)
        self.pause(0.1)

    def type(self, command):
        """Types a command, two characters at a time, and enters it."""
        for at in range(0, len(command), 2):
            # At the end of an argument a semicolon separates commands of tmux.
            self._tmux("send-keys", "-l", "--", re.sub(";$", "\\;", command[at : at + 2]))
            time.sleep(2 * KEY_S - SAMPLE_S / 2)
            self._sample()
        self.pause(0.4)
        self.key("Enter")

    def key(self, name):
        self._tmux("send-keys", name)


def still(screen, columns):
    """Draws one screen, without the blank rows around it."""
    cells = _cells(screen[0])
    while not cells[0]:
        del cells[0]
    height = max(at + 1 for at, row in enumerate(cells) if row)
    return _drawing(columns, height, "".join(_row(at, row) for at, row in enumerate(cells)), "")


def moving(frames, columns, rows, end_s):
    """Draws an animation that repeats after `end_s`. Where nothing moves, its last frame shows."""
    shown = {}
    times = [at for at, _ in frames] + [end_s]
    open_since = [None] * rows
    for number, (began, screen) in enumerate([*frames, (end_s, ((), None))]):
        drawn = [_row(at, row) for at, row in enumerate(_cells(screen[0]))]
        if screen[1] and screen[1][1] < len(drawn):
            drawn[screen[1][1]] += _cursor(*screen[1])
        drawn += [""] * (rows - len(drawn))
        for at in range(rows):
            before, since = open_since[at] or ("", 0)
            if number == len(frames) or drawn[at] != before:
                if before:
                    shown.setdefault((since, times[number]), []).append(before)
                open_since[at] = (drawn[at], began)
    style, body = [f".f{{visibility:hidden;animation:{end_s:.2f}s step-end infinite}}",
                   ".l{visibility:visible}",
                   "@media (prefers-reduced-motion:reduce){.f{animation:none!important}}"], []
    for number, ((since, until), drawn) in enumerate(sorted(shown.items())):
        if (since, until) == (0, end_s):
            body.append("".join(drawn))
            continue
        last = " l" if until == end_s else ""
        body.append(f'<g class="f{last}" style="animation-name:k{number}">{"".join(drawn)}</g>')
        steps = [] if since == 0 else ["0%{visibility:hidden}"]
        steps.append(f"{100 * since / end_s:.5g}%{{visibility:visible}}")
        steps += [] if last else [f"{100 * until / end_s:.5g}%{{visibility:hidden}}"]
        style.append(f"@keyframes k{number}{{{''.join(steps)}}}")
    return _drawing(columns, rows, "\n".join(body), "\n".join(style))


def _drawing(columns, rows, body, style):
    width = round(columns * CELL_WIDTH) + 2 * MARGIN
    height = rows * CELL_HEIGHT + 2 * MARGIN
    light, dark = (
        "".join(f"--{name}:{pair[mode]};" for name, pair in COLOURS.items()) for mode in (0, 1)
    )
    classes = "".join(f".{name}{{fill:var(--{name})}}" for name in SGR_COLOURS.values())
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}">
<style>
:root{{{light}}}
@media (prefers-color-scheme:dark){{:root{{{dark}}}}}
g{{fill:var(--text)}}
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
white-space:pre}}
rect{{shape-rendering:crispEdges}}
{classes}.bold{{font-weight:700}}.dim{{opacity:.6}}
{style}
</style>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" \
style="fill:var(--back);stroke:var(--edge)"/>
<g transform="translate({MARGIN} {MARGIN})">
{body}
</g>
</svg>
"""


def _cells(rows):
    """Returns each row as (character, style) pairs without blanks at its end; a style that no code
    ends continues in the next row.
    """
    style, screen = (), []
    for row in rows:
        cells = []
        for codes, plain in re.findall("\x1b\\[([0-9;]*)m|([^\x1b\x0e\x0f])", row):
            if plain:
                cells.append((plain, style))
                continue
            for code in (int(code or 0) for code in codes.split(";")):
                style = _style(style, code)
        while cells and cells[-1][0] == " ":
            cells.pop()
        screen.append(cells)
    return screen


def _style(style, code):
    if code in (1, 2):
        return (*style, "bold" if code == 1 else "dim")
    if code in SGR_COLOURS or code == 39:
        style = tuple(name for name in style if name not in SGR_COLOURS.values())
        return style if code == 39 else (*style, SGR_COLOURS[code])
    return () if code == 0 else style


def _row(number, cells):
    """Draws one row: a text for each run of one style, a shape for each run of blocks or lines."""
    out, at, top = [], 0, number * CELL_HEIGHT
    while at < len(cells):
        character, style = cells[at]
        end = at + 1
        if character == " ":
            at = end
            continue
        shape = _is_shape(character)
        while end < len(cells) and cells[end][1] == style and (
            cells[end][0] == character if shape else not _is_shape(cells[end][0])
        ):
            end += 1
        x, columns = at * CELL_WIDTH, end - at
        if shape:
            out.append(_shape(character, style, x, top, columns * CELL_WIDTH))
        else:
            text = "".join(cell[0] for cell in cells[at:end]).rstrip()
            out.append(
                f'<text{_class(style)} x="{x:g}" y="{top + BASELINE:g}"'
                f' textLength="{len(text) * CELL_WIDTH:g}">{escape(text, quote=False)}</text>'
            )
        at = end
    return "".join(out)


def _is_shape(character):
    return character in BLOCKS[1:] or character in SHADES or character in LINES


def _shape(character, style, x, top, width):
    height = CELL_HEIGHT * BLOCKS.index(character) / 8 if character in BLOCKS else CELL_HEIGHT
    y, opacity = top + CELL_HEIGHT - height, ""
    if character in LINES:
        height = LINES[character]
        y = top + (CELL_HEIGHT - height) / 2
    elif character in SHADES:
        opacity = f' fill-opacity="{SHADES[character]}"'
    return (f'<rect{_class(style)} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
            f'{opacity}/>')


def _cursor(column, row):
    return (f'<rect x="{column * CELL_WIDTH:g}" y="{row * CELL_HEIGHT + 1}" width="{CELL_WIDTH}"'
            f' height="{CELL_HEIGHT - 2}" fill-opacity=".5"/>')


def _class(style):
    return f' class="{" ".join(style)}"' if style else ""
