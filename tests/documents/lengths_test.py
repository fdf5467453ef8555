#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shortest whole programs of docs/embedding.md stay as short as a reader takes in at once.

usage: lengths_test.py --source REPOSITORY

Lines of code are counted: no blank ones, and none of comments alone.
"""

import re
import unittest

import markdown
import source_option

PAGE = "docs/embedding.md"
MOST_LINES = 40
# By the name in a block's first line: a kernel of one's own, and GraphManager with work on the CPU.
PROGRAMS = ("axpy.cu", "sums.cc")


def num_lines(program: str) -> int:
    code = re.sub(r"(?ms)^[ \t]*(?:/\*.*?\*/[ \t]*|//[^\n]*)$", "", program)
    return sum(1 for line in code.split("\n") if line.strip())


def programs(blocks: list[markdown.Block]) -> dict[str, markdown.Block]:
    """By the file that their first line names."""
    return {b.text.split("\n")[0][3:]: b for b in blocks if b.text.startswith("// ")}


def faults(blocks: list[markdown.Block]) -> list[str]:
    found = []
    known = programs(blocks)
    for name in PROGRAMS:
        if name not in known:
            found.append(f"{PAGE}: got no program {name}, needed: one")
        elif num_lines(known[name].text) > MOST_LINES:
            found.append(f"{known[name].place}: {name}: got {num_lines(known[name].text)} lines of "
                         f"code, allowed: {MOST_LINES}")  # fmt: skip
    return found


class Lengths(unittest.TestCase):
    def setUp(self):
        self.blocks = markdown.blocks(source_option.SOURCE, source_option.SOURCE / PAGE)

    def test_of_the_programs_are_kept(self):
        self.assertEqual(faults(self.blocks), [])

    def test_of_longer_programs_are_refused(self):
        block = programs(self.blocks)["axpy.cu"]
        block.text += "\n  ++i;" * (MOST_LINES - num_lines(block.text))
        self.assertEqual(faults(self.blocks), [])
        block.text += "\n  ++i;"
        self.assertRegex(
            "\n".join(faults(self.blocks)),
            r"^docs/embedding\.md:\d+: axpy\.cu: got 41 lines of code, allowed: 40$",
        )

    def test_of_missing_programs_are_refused(self):
        rest = [block for block in self.blocks if not block.text.startswith("// sums.cc")]
        self.assertEqual(faults(rest), [f"{PAGE}: got no program sums.cc, needed: one"])

    def test_leave_out_blank_lines_and_comments(self):
        text = "// a.cc\n\nint a;  // counts\n  // no\n/* no\n   no */\nint b; /* counts */\n"
        self.assertEqual(num_lines(text), 2)


if __name__ == "__main__":
    source_option.main(__doc__)
