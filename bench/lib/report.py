"""Saved runs: bench/runs/<date>-<name>.json with all results, and a Markdown table beside it."""

import datetime
import json
import os
import sys
import textwrap

from lib import host


def verdict(name, figure, aim, unit="", at_most=True, interval=None):
    """Judges a figure against an aim. `figure` None: it was not measured, so the aim is not
    reached.
    """
    if figure is None:
        outcome = "not measured"
    else:
        outcome = "reached" if (figure <= aim if at_most else figure >= aim) else "not reached"
    return {
        "name": name,
        "figure": figure,
        "aim": aim,
        "at_most": at_most,
        "unit": unit,
        "outcome": outcome,
        "interval": interval,
    }


COLUMNS = 100


def _number(value):
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}"


def _wrapped(line, indent=""):
    """Breaks a line where it would be too long. What is in it is not broken within words."""
    return textwrap.fill(
        line,
        COLUMNS,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def verdict_line(v):
    sign = "≤" if v["at_most"] else "≥"
    unit = f" {v['unit']}" if v["unit"] else ""
    if v["figure"] is None:
        return f"- {v['name']}: not measured (aim {sign} {_number(v['aim'])}{unit})"
    interval = ""
    if v["interval"]:
        interval = f" [95 %: {_number(v['interval'][0])}–{_number(v['interval'][1])}]"
    figure = f"**{_number(v['figure'])}{unit}**{interval}"
    return f"- {v['name']}: {figure}, aim {sign} {_number(v['aim'])}{unit}: {v['outcome']}"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def keep(name, results, markdown, verdicts, directory=None, more=None):
    """Writes both files and `more` ({ending: text}), and prints the Markdown.

    Returns the exit status: 0, or 3 if an aim was missed.
    """
    run = {"schema": f"hotrow-bench-{name}/1", **host.describe(), "verdicts": verdicts, **results}
    about = run["host"]
    text = "\n".join(
        [
            f"# {name}, {run['time']}",
            "",
            _wrapped(f"`{' '.join(run['command'])}`, commit {run['commit']},"),
            f"{about['cpu']}, {about['cores']} cores, "
            f"Linux {about['kernel']}, {about['memory']}",
            "",
            markdown,
            "",
            *[_wrapped(verdict_line(v), "  ") for v in verdicts],
            "",
        ]
    )
    print(text)
    if directory != "-":
        directory = directory or os.path.join(host.REPOSITORY, "bench", "runs")
        os.makedirs(directory, exist_ok=True)
        stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d-%H%M")
        base = os.path.join(directory, f"{stamp}-{name}")
        with open(base + ".json", "w") as file:
            json.dump(run, file, indent=1, ensure_ascii=False)
            file.write("\n")
        with open(base + ".md", "w") as file:
            file.write(text)
        for ending, content in (more or {}).items():
            with open(f"{base}.{ending}", "w") as file:
                file.write(content)
        print(f"kept in {os.path.relpath(base)}.json and .md", file=sys.stderr)
    return 3 if any(v["outcome"] == "not reached" for v in verdicts) else 0
