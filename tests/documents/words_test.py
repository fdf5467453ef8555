#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuses, in every document, words that mean something only to those who planned the work.

usage: words_test.py --source REPOSITORY
"""

import re
import unittest

import markdown
import source_option

# What is refused, and why. Spaces match the end of a line, too; case does not count. Phrases that
# have an ordinary use are not here: a server accepts, CMake has targets, a row has a next step.
REFUSED = {
    r"first design": "readers know the design that there is: say what it is and why",
    r"[(;](?: )?(?:goal|target|wanted): [0-9]": "a plan's limit: say what the figure compares with",
    r"wanted (?:is|are) [0-9]": "a plan's limit, likewise",
    r"acceptance criteri(?:on|a)": "those of a plan that readers do not have",
    r"next steps:": "a plan: say what has not been tried",
    r"next thing to try": "a plan, likewise",
    r"what is left to do": "a plan, likewise",
    r"\b(?:as|by|in|of|see|the) issue [0-9]+": "a number in a list that readers do not have",
    r"\banchor (?:figure|measurement|number|value)s?": "a planner's word: say what was measured",
    r"the restructuring of": "the work's own history: say what changed in the code",
    r"the move to one source": "the work's own history, likewise",
    r"\bwork session": "when somebody worked: sessions are those of a server",
}
PATTERNS = [
    (re.compile(phrase.replace(" ", r"\s+"), re.IGNORECASE), why) for phrase, why in REFUSED.items()
]


def faults(name: str, text: str) -> list[str]:
    """Each as "<name>:<line>: "<words>": <why>", in the text's order."""
    hits = sorted(
        (match.start(), " ".join(match.group().split()), why)
        for pattern, why in PATTERNS
        for match in pattern.finditer(text)
    )
    return [f'{name}:{text.count(chr(10), 0, at) + 1}: "{words}": {why}' for at, words, why in hits]


class Words(unittest.TestCase):
    def test_of_the_documents_are_those_of_readers(self):
        files = markdown.all_documents(source_option.SOURCE)
        names = [str(file.relative_to(source_option.SOURCE)) for file in files]
        for name in ("README.md", "docs/benchmarks/README.md", "clients/node/README.md"):
            self.assertIn(name, names)
        found = []
        for name, file in zip(names, files):
            found += faults(name, file.read_text())
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_that_are_refused_are_named_with_their_place(self):
        text = "# Times\n\n16 sessions cost 19 % more (Wanted: 10 %).\nWhat is\nleft to do: all.\n"
        found = faults("docs/a.md", text)
        self.assertEqual(len(found), 2, found)
        self.assertRegex(found[0], r'^docs/a\.md:3: "\(Wanted: 1": a plan\'s limit')
        self.assertRegex(found[1], r'^docs/a\.md:4: "What is left to do": a plan')

    def test_that_are_refused_are_all_found(self):
        for text in (
            "where it departs from the first design",
            "(1.12 in the best repetition; wanted: 1.10)",
            "Wanted are 60 us, 1.2 and 15 us.",
            "38 ms (target: 100 ms)",
            "the acceptance criteria",
            "Next steps: fused prologues",
            "the next thing to try",
            "as issue 12 says",
            "the anchor figures",
            "The restructuring of November 2026",
            "The move to one source for all vendors",
            "in an earlier work session",
        ):
            self.assertEqual(len(faults("a.md", text)), 1, text)

    def test_of_ordinary_use_pass(self):
        for text in (
            "accepts as many rows as before; drafts are accepted",
            "target_link_libraries(a PRIVATE b), with the targets `reprise::graphs`",
            "reprise_fuzzer --target=frames; on every target; a copy's target",
            '- targets: ["127.0.0.1:50062"]',
            "a client that sends its next step; the next steps run at once",
            "say that JSON is wanted: a mask keeps out what is wrong",
            "this session's blocks; the last session has ended",
            "warps issue 4 loads at once",
            "when nothing else is left to do",
        ):
            self.assertEqual(faults("a.md", text), [], text)


if __name__ == "__main__":
    source_option.main(__doc__)
