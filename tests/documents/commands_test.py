#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command that the documents and the program's help show.

usage: commands_test.py --source REPOSITORY --build BUILD --program REPRISE

commands.py says how each is tried.
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import markdown
from commands import Commands, Failure, read_options, shown_by


def commands_of_help(program):
    for name in ("", "serve", "sched", "run", "health", "top", "sessions", "reload", "tree",
                 "replay", "profile", "report", "compare", "graph", "advise", "bench",
                 "bench attention", "bench linear", "bench step", "tune", "tune attention",
                 "tune linear", "check",
                 "completion", "man"):  # fmt: skip
        words = [program, "help", *name.split()]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        text = re.sub(r" \\\n\s*", " ", text.split("Examples:\n")[1])
        for line in text.split("\n"):
            if line.startswith("  "):
                yield shlex.join(["reprise", "help", name]), line.strip()


def main() -> int:
    source, build, program = read_options(__doc__)
    documents = markdown.documents(source)
    listed = [(shown.place, shown.command) for d in documents for shown in shown_by(source, d)]
    listed += commands_of_help(program)
    failures = []
    tried = set()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        commands = Commands(source, build, program, pathlib.Path(directory))
        try:
            for place, command in listed:
                if command in tried:
                    continue
                tried.add(command)
                try:
                    commands.try_one(command)
                except (Failure, subprocess.TimeoutExpired) as failure:
                    failures.append(f"{place}: {command}\n  {failure}")
        finally:
            commands.close()
    for failure in failures:
        print(failure)
    took = time.monotonic() - start
    print(f"{len(tried)} commands in {took:.0f} s, {len(failures)} failed")
    return 1 if failures or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
