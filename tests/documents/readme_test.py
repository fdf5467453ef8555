#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command of README.md on a pseudo-terminal, and compares with what README shows.

usage: readme_test.py --source REPOSITORY --build BUILD --program REPRISE

A command with output below it runs as it stands, on the host device, and what remains on the
terminal is that output (shown_output.py says what is compared, and what is measured). Of
tools/quickstart.sh that is all but installing and building. All other commands run with less work
(commands.py) and end well. What would install, build or compile is not run; it is listed with its
reason. Before that, the screen and the comparison are tested themselves.
"""

import glob
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

import commands
from commands import Failure, check
from shown_output import difference

try:
    from terminal import Screen, Terminal
except ImportError as error:
    print(f"SKIPPED: {sys.executable} has no terminals: {error}")
    sys.exit(0)

README = "README.md"
QUICKSTART = "./tools/quickstart.sh"
TIMEOUT_S = 120
# What its recordings hold.
PROMPT = "You may copy and distribute"

# Counts that depend on when requests meet each other.
MEASURED_COLUMNS = {QUICKSTART: ("steps", "replays", "tokens", "padding")}


class ReadmeCommands(commands.Commands):
    """The commands of the documents, on terminals."""

    def __init__(self, source, build, program, scratch):
        super().__init__(source, build, program, scratch)
        self.ran = []  # for the command that is tried
        self.not_run = ""  # or why nothing was

    # ---- on a terminal ----

    def spawn(self, words):
        self.ran.append(words)
        return Terminal(words, self.scratch)

    def run(self, words, expected=0):
        terminal = self.spawn(words)
        code = terminal.wait(TIMEOUT_S)
        screen = terminal.screen()
        text = "\n".join(screen.lines())
        line = shlex.join(map(str, words))
        check(code == expected, f"{line}\n  exit code {code}, expected {expected}\n{text[-2000:]}")
        check(not screen.unknown, f"{line}\n  wrote what no screen here knows: {screen.unknown}")
        return types.SimpleNamespace(stdout=text, stderr=text, screen=screen)

    def top(self):
        """Until it shows a server, and Ctrl-C: then its screen is gone."""
        terminal = self.spawn([self.program, "top", "--address", self.served() + ".metrics"])
        terminal.wait_for("KV blocks held", TIMEOUT_S)
        terminal.type("\x03")
        code = terminal.wait(TIMEOUT_S)
        screen = terminal.screen()
        check(code == 128 + signal.SIGINT, f"reprise top: exit code {code}\n{terminal.output}")
        check(not screen.unknown, f"reprise top: no screen here knows {screen.unknown}")
        check("SERVING" in "\n".join(screen.other), f"reprise top showed {screen.other}")
        left = screen.lines()
        check(left == ["", "reprise top: stopped by SIGINT"], f"reprise top left {left}")

    # ---- what is shown ----

    def recorded(self):
        """Has the server of README's own command record what README's prompt brings."""
        directory = self.scratch / "recordings"
        if not list(directory.glob("*.record")):
            words = [self.program, "serve", "--model", "examples/byte-llama", "--device", "host"]
            process, address = self.start([*words, "--record", directory.name])
            self.run([self.program, "sched", "--address", address, "--prompt", PROMPT])
            self.stop(process)

    def as_it_stands(self, words):
        if words[0] == QUICKSTART:
            return [self.source / words[0], *words[1:], "--program", self.program]
        check(words[0] == "reprise", f"no rule for what {words[0]} shows")
        out = [self.program]
        for word in words[1:]:
            if word.startswith("recordings/"):
                self.recorded()
            found = sorted(glob.glob(word, root_dir=self.scratch)) if "*" in word else []
            out += found or [word]
        return [*out, *([] if "--device" in words else ["--device", "host"])]

    def quickstart_refuses(self):
        for file, got in ((self.source / README, f'got "{self.source / README}"'), ("", 'got ""')):
            words = [self.source / QUICKSTART, "--program", file]
            said = self.run(words, expected=1).stdout
            check(f"--program: {got}, allowed: a reprise program" in said, said)

    def compare_output(self, shown):
        words = self.as_it_stands(shlex.split(shown.command))
        self.ran.clear()
        printed = self.run(words).screen.lines()
        differs = difference(shown.output, printed, MEASURED_COLUMNS.get(shown.command, ()))
        check(not differs, differs)
        if shown.command == QUICKSTART:
            self.quickstart_refuses()

    # ---- what is not ----

    def script(self, words, about=""):
        self.not_run = "installs or builds; its --help is run"
        path = self.source / words[0]
        check(os.access(path, os.X_OK), f"{words[0]}: no such file, or not executable")
        text = self.run([path, "--help"]).stdout
        for option in [*words[1:], *re.findall(r"--[\w-]+", about)]:
            check(not option.startswith("--") or option in text,
                  f"{words[0]}: --help does not know {option}")  # fmt: skip

    def cmake(self, words):
        super().cmake(words)
        if not self.ran:
            self.not_run = "configures or builds this tree; its presets and options exist"

    def try_shown(self, shown):
        self.ran.clear()
        self.not_run = ""
        if shown.output:
            self.compare_output(shown)
        elif shown.command == "reprise top":
            self.top()
        elif shown.command.removeprefix("./").startswith("tools/"):
            self.script(shlex.split(shown.command), shown.about)
        else:
            self.try_one(shown.command)
            if shown.command.startswith("c++ "):
                self.not_run = "compiles; documents.Programs and tree.Package do"


# ---- the screen and the comparison ----


class ScreenTest(unittest.TestCase):
    def shown(self, text, columns=8):
        screen = Screen(columns).draw(text)
        self.assertEqual(screen.unknown, [])
        return screen.lines()

    def test_draws_over(self):
        self.assertEqual(self.shown("abc\rX\r\nd\x1b[31me\x1b[0m"), ["Xbc", "de"])
        self.assertEqual(self.shown("[#.] 1/2\r\x1b[Ktext \r\n"), ["text"])

    def test_joins_what_the_terminal_broke(self):
        self.assertEqual(self.shown("abcdefghij\r\nabcdefgh\r\nk"), ["abcdefghij", "abcdefgh", "k"])

    def test_has_a_second_screen(self):
        screen = Screen().draw("a\r\n\x1b[?1049h\x1b[?25l\x1b[Hone\x1b[K\r\ntwo\x1b[H1\x1b[K\x1b[J")
        self.assertEqual(screen.draw("\x1b[?25h\x1b[?1049lb").lines(), ["a", "b"])
        self.assertEqual(screen.other, ["1"])

    def test_names_what_it_cannot_draw(self):
        self.assertEqual(Screen().draw("a\x1b[2A\x07").unknown, ["\x1b[2A", "\x07"])


TABLE = ["n  steps     wall  padding  rate",
         "-  -----  -------  -------  ----",
         "1    129  45.7 ms    0.5 %   9/s"]  # fmt: skip


class DifferenceTest(unittest.TestCase):
    def same(self, shown, printed, columns=()):
        self.assertEqual(difference(shown, printed, columns), "")

    def differ(self, shown, printed, columns=()):
        self.assertNotEqual(difference(shown, printed, columns), "")

    def test_text_is_exact(self):
        self.same(["a text", ""], ["a text"])
        self.differ(["a text"], ["a test"])
        self.differ(["a text"], ["a  text"])
        self.differ(["a text."], ["a text;"])
        self.differ(["a text"], ["a text", "and more"])
        self.differ(["a text", "and more"], ["a text"])
        self.differ(["a text"], [])

    def test_numbers_are_exact(self):
        self.same(["3,758,848 in 7.17 MiB"], ["3,758,848 in 7.17 MiB"])
        self.differ(["3,758,848 in 7.17 MiB"], ["3,758,849 in 7.17 MiB"])
        self.differ(["3,758,848 in 7.17 MiB"], ["3,758,848 in 7.18 MiB"])
        self.differ(["mixed/64"], ["mixed/65"])

    def test_measured_numbers_have_their_unit(self):
        self.same(["in 9.5 ms, 1,466/s"], ["in 1,012 us, 9.1/s"])
        self.same(["read 19.2 GB/s, +5.1 %"], ["read 900 MB/s, -0.3 %"])
        self.differ(["in 9.5 ms"], ["in 9.5 MiB"])
        self.differ(["in 9.5 ms"], ["in a moment"])
        self.differ(["in 9.5 ms, 3 rows"], ["in 9.6 ms, 4 rows"])
        self.differ(["9.5/s"], ["9.5 MB/s"])

    def test_names_of_the_machine_are_measured(self):
        self.same(["on host:0, AMD EPYC: 53 kernels"], ["on host:0, Intel(R) Xeon(R): 53 kernels"])
        self.differ(["on host:0, AMD EPYC: 53 kernels"], ["on host:0, AMD EPYC: 54 kernels"])
        name = "r/session-20261127T132352-19474-1.record: "
        self.same([name + "equal"], ["r/session-20270101T000000-7-1.record: equal"])
        self.differ([name + "equal"], [name + "differs"])

    def test_columns_of_tables(self):
        wide = ["n  steps       wall  padding     rate",
                "-  -----  ---------  -------  -------",
                "1    129  1,045 ms     0.5 %  1,200/s"]  # fmt: skip
        self.same(TABLE, wide)
        self.differ(TABLE, [*wide[:2], wide[2].replace("129", "128")])
        self.same(TABLE, [*wide[:2], wide[2].replace("129", "128")], ("steps",))
        self.differ(TABLE, [*wide[:2], wide[2].replace("0.5 %", "0.6 %")])
        self.same(TABLE, [*wide[:2], wide[2].replace("0.5 %", "0.6 %")], ("padding",))
        self.differ(TABLE, [wide[0], "-  -----", wide[2]])

    def test_left_out_lines(self):
        printed = ["a", "b", "c", "d"]
        self.same(["...", "c", "..."], printed)
        self.same(["a", "...", "b", "...", "d"], printed)
        self.same(["...", "c", "d"], printed)
        self.differ(["...", "c"], printed)
        self.differ(["b", "..."], printed)
        self.differ(["a", "...", "b", "d"], printed)
        self.differ(["...", "c", "...", "b", "..."], printed)


# ---- all ----


def test_the_test():
    loader = unittest.TestLoader()
    cases = [loader.loadTestsFromTestCase(case) for case in (ScreenTest, DifferenceTest)]
    return unittest.TextTestRunner(stream=sys.stdout).run(unittest.TestSuite(cases)).wasSuccessful()


def report(shown, readme):
    ran = "; ".join(shlex.join(map(str, words)) for words in readme.ran)
    for path, name in ((readme.program, "reprise"), (readme.scratch, "."), (readme.source, ".")):
        ran = ran.replace(str(path), name)
    if shown.output:
        return f"compared: {ran}"
    if readme.not_run or not ran:
        return f"not run: {readme.not_run or 'a name, no whole command'}"
    return f"run: {ran}"


def stop(number, _):
    sys.exit(128 + number)


def main() -> int:
    source, build, program = commands.read_options(__doc__)
    if not test_the_test():
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    tried = set()
    compared = failed = 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        readme = ReadmeCommands(source, build, program, pathlib.Path(directory))
        try:
            for shown in commands.shown_by(source, source / README):
                if shown.command in tried and not shown.output:
                    continue
                tried.add(shown.command)
                try:
                    readme.try_shown(shown)
                    compared += bool(shown.output)
                    print(f"{shown.place}: {shown.command}\n  {report(shown, readme)}")
                except (Failure, subprocess.TimeoutExpired) as failure:
                    failed += 1
                    print(f"{shown.place}: {shown.command}\n  FAILED: {failure}")
            readme.close()
        finally:
            Terminal.close_all()
    took = time.monotonic() - start
    print(f"{len(tried)} commands in {took:.0f} s, {compared} of them compared, {failed} failed")
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
