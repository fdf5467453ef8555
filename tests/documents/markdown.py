# SPDX-License-Identifier: Apache-2.0
"""What the documents show: snippets of code and commands, with the place where they stand; their
headings and links."""

import dataclasses
import os
import pathlib
import re
import textwrap


# Of other projects, or made.
LEFT_OUT = {"build", "node_modules"}


@dataclasses.dataclass
class Block:
    place: str  # "docs/wire.md:44"
    document: str
    language: str  # of a fenced block; "" for none, "indented" for one without fences
    text: str


def documents(source: pathlib.Path) -> list[pathlib.Path]:
    names = ["README.md", "CONTRIBUTING.md"]
    return [source / name for name in names] + sorted((source / "docs").rglob("*.md"))


def all_documents(source: pathlib.Path) -> list[pathlib.Path]:
    """Wherever they stand in the repository."""
    found = []
    for folder, folders, files in os.walk(source):
        folders[:] = [f for f in folders if f not in LEFT_OUT and not f.startswith(".")]
        found += [pathlib.Path(folder) / file for file in files if file.endswith(".md")]
    return sorted(found)


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


# ---- headings and links ----


@dataclasses.dataclass
class Link:
    line: int
    target: str  # "wire.md#sampling", "#the-file"


def without_blocks(text: str) -> str:
    """Lines of fenced blocks are empty, so that those behind them keep their numbers."""
    lines, fence = [], None
    for line in text.split("\n"):
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        ends = fence and mark and mark.group(1).startswith(fence) and not line.strip("`~ ")
        lines.append("" if mark or fence else line)
        if fence is None and mark:
            fence = mark.group(1)
        elif ends:
            fence = None
    return "\n".join(lines)


def shown(heading: str) -> str:
    """A heading's text as a reader sees it: code, links and emphasis without their marks."""
    parts = re.split(r"(`+)(.+?)\1", heading)
    for i in range(0, len(parts), 3):  # what is no code
        text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", parts[i])
        text = re.sub(r"<[^>]+>", "", text)
        text = re.sub(r"(?<!\\)\*+", "", text)
        text = re.sub(r"(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)", "", text)
        parts[i] = re.sub(r"\\([^\w\s])", r"\1", text)
    return "".join(parts[i] + (parts[i + 2] if i + 2 < len(parts) else "")
                   for i in range(0, len(parts), 3))


def slug(heading: str) -> str:
    """GitHub's name of a heading: lower case, without punctuation, spaces as hyphens."""
    return re.sub(r"[^\w\- ]", "", shown(heading).strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """What a link to the document may have behind its #. Of headings alike, all but the first
    have a number behind them."""
    found: dict[str, int] = {}
    heading = r"(?m)^ {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$"
    for match in re.finditer(heading, without_blocks(text)):
        name = slug(match.group(1))
        free = name
        while free in found:
            found[name] += 1
            free = f"{name}-{found[name]}"
        found[free] = 0
    return set(found) | set(re.findall(r"<[^>]*\b(?:id|name)=[\"']([^\"']+)[\"']", text))


def links(text: str) -> list[Link]:
    """Of text, pictures and references, in order; what stands in code is none."""
    code = r"(`+)(?!`)((?:.|\n(?!\s*\n))+?)(?<!`)\1(?!`)"  # within a paragraph
    text = re.sub(code, lambda match: re.sub(r"[^\n]", " ", match.group()), without_blocks(text))
    inside = r"\]\(\s*<?([^\s()<>]+)>?(?:\s+\"[^\"]*\")?\s*\)"
    reference = r"(?m:^ {0,3}\[[^\]]+\]:\s*(\S+))"
    return [
        Link(text.count("\n", 0, match.start()) + 1, match.group(1) or match.group(2))
        for match in re.finditer(f"{inside}|{reference}", text)
    ]
