# SPDX-License-Identifier: Apache-2.0
"""What the documents show: snippets of code and commands, with the place where they stand."""

import dataclasses
import pathlib
import re
import textwrap


@dataclasses.dataclass
class Block:
    place: str  # "docs/wire.md:44"
    document: str
    language: str  # of a fenced block; "" for none, "indented" for one without fences
    text: str


def documents(source: pathlib.Path) -> list[pathlib.Path]:
    names = ["README.md", "CONTRIBUTING.md"]
    return [source / name for name in names] + sorted((source / "docs").rglob("*.md"))


def blocks(source: pathlib.Path, document: pathlib.Path) -> list[Block]:
    """All code blocks, in order."""
    name = str(document.relative_to(source))
    found = []
    fence = None  # line number, language, lines
    indented = None
    blank = True
    for number, line in enumerate(document.read_text().splitlines() + [""], 1):
        mark = re.match(r"\s*```(\w*)", line)
        if fence is not None:
            if mark:
                text = textwrap.dedent("\n".join(fence[2]))
                found.append(Block(f"{name}:{fence[0]}", name, fence[1], text))
                fence = None
            else:
                fence[2].append(line)
            continue
        if line.startswith("    ") and (blank or indented is not None) and not mark:
            indented = indented or (number, [])
            indented[1].append(line)
        elif indented is not None and line.strip():
            text = textwrap.dedent("\n".join(indented[1])).strip()
            found.append(Block(f"{name}:{indented[0]}", name, "indented", text))
            indented = None
        if mark:
            fence = (number, mark.group(1), [])
        blank = not line.strip()
    return found


def inline_code(source: pathlib.Path, document: pathlib.Path) -> list[Block]:
    """Code inside text, where a line may break it."""
    name = str(document.relative_to(source))
    text = re.sub(r"(?ms)^\s*```.*?^\s*```", lambda m: "\n" * m.group().count("\n"), document.read_text())
    found = []
    for match in re.finditer(r"`([^`]+)`", text):
        number = text.count("\n", 0, match.start()) + 1
        found.append(Block(f"{name}:{number}", name, "inline", " ".join(match.group(1).split())))
    return found
