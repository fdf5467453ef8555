#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documents' links lead somewhere: to files of the repository, and to headings by the names
that GitHub gives them. Links to other sites are not followed.

usage: links_test.py --source REPOSITORY
"""

import pathlib
import re
import unittest

import markdown
import source_option


class Documents:
    """The anchors of those that links lead to, each read once."""

    def __init__(self, source: pathlib.Path):
        self.source = source.resolve()
        self.known: dict[pathlib.Path, set[str]] = {}

    def anchors(self, file: pathlib.Path) -> set[str]:
        if file not in self.known:
            self.known[file] = markdown.anchors(file.read_text())
        return self.known[file]

    def fault(self, document: pathlib.Path, target: str) -> str | None:
        """What is wrong with a link of the document; None: nothing."""
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            return None
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists():
            return f"{target}: there is no {path}"
        if not file.is_relative_to(self.source):
            return f"{target}: outside the repository"
        if anchor and file.suffix == ".md" and anchor not in self.anchors(file):
            return f"{target}: {file.relative_to(self.source)} has no such heading"
        return None

    def faults(self, document: pathlib.Path) -> list[str]:
        """Each as "<name>:<line>: <link>: <why>", in the text's order."""
        name = document.relative_to(self.source)
        found = ((link, self.fault(document, link.target))
                 for link in markdown.links(document.read_text()))  # fmt: skip
        return [f"{name}:{link.line}: {why}" for link, why in found if why is not None]


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        documents = Documents(source_option.SOURCE)
        files = markdown.all_documents(documents.source)
        names = [str(file.relative_to(documents.source)) for file in files]
        self.assertIn("docs/benchmarks/README.md", names)
        found = [fault for file in files for fault in documents.faults(file)]
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_that_lead_nowhere_are_named_with_their_place(self):
        documents = Documents(source_option.SOURCE)
        document = documents.source / "docs/kv.md"
        self.assertIsNone(documents.fault(document, "#swap-space"))
        self.assertIsNone(documents.fault(document, "../README.md#limitations"))
        self.assertIsNone(documents.fault(document, "https://example.com/a#b"))
        self.assertIsNone(documents.fault(document, "../proto"))
        self.assertEqual(
            documents.fault(document, "#swap-spaces"),
            "#swap-spaces: docs/kv.md has no such heading",
        )
        self.assertEqual(
            documents.fault(document, "wire.md#no"), "wire.md#no: docs/wire.md has no such heading"
        )
        self.assertEqual(documents.fault(document, "no.md#a"), "no.md#a: there is no no.md")
        self.assertEqual(documents.fault(document, "../.."), "../..: outside the repository")

    def test_are_found_in_text_alone(self):
        text = """See [a](a.md#x), [b
b](<b.md>) and `[no](no.md)`, ![c](c.svg "title").

```
[no](no.md)
```
[ref]: d.md#y
    ``[no](no.md) ` ``
[e [f]](e.md)
"""
        found = [(link.line, link.target) for link in markdown.links(text)]
        self.assertEqual(
            found, [(1, "a.md#x"), (2, "b.md"), (2, "c.svg"), (7, "d.md#y"), (9, "e.md")]
        )


class Anchors(unittest.TestCase):
    def test_are_githubs(self):
        for heading, slug in (
            ("What recording costs", "what-recording-costs"),
            ("Less requested (requests_h200.json, a_b.json)",
             "less-requested-requests_h200json-a_bjson"),
            ("`reprise serve --record DIR`", "reprise-serve---record-dir"),
            ("C++ and C", "c-and-c"),
            ("Reads, writes: 10 %", "reads-writes-10-"),
            ("[kv.md](kv.md#x) and *more* of **it**", "kvmd-and-more-of-it"),
            ("_Words_ with snake_case", "words-with-snake_case"),
            ("`_kept_` and 2 \\* 3", "_kept_-and-2--3"),
            ("A / B", "a--b"),
            ("Gr\u00f6\u00dfe", "gr\u00f6\u00dfe"),
        ):  # fmt: skip
            self.assertEqual(markdown.slug(heading), slug, heading)

    def test_of_headings_alike_have_numbers(self):
        text = "# A\n\n## A\n\n## B #\n\n### A-1\n\n## A\n"
        self.assertEqual(markdown.anchors(text), {"a", "a-1", "b", "a-1-1", "a-2"})

    def test_are_no_lines_of_code(self):
        text = '# A\n\n```sh\n# b\n```\n\n~~~\n```\n# c\n~~~\n#d\n<a id="e"></a>\n'
        self.assertEqual(markdown.anchors(text), {"a", "e"})


if __name__ == "__main__":
    source_option.main(__doc__)
