# SPDX-License-Identifier: Apache-2.0
"""Whether a program printed what a document shows, but for what is measured.

Measured is a number with a unit of time ("45.7 ms"), of a rate ("2,800/s") or of a bandwidth ("19.2
GB/s"), and a percentage ("93.9 %"): another number with a unit of the same kind is as good. So is
another name of a processor after "host:0, ", and another name of a recording. All other text and
numbers are compared as they are. Two blanks or more are as good as two, and rules of dashes may
have any length: columns are as wide as what is measured. "..." stands for lines that are left out,
if any.

Columns of a table are known by their headers: percentages below EXACT_COLUMNS are counted, not
measured. Which columns of counts depend on time, the caller says.
"""

import re

EXACT_COLUMNS = ("padding", "against current")

NUMBER = r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?"
# Each with what is as good. The first that matches is taken.
MEASURED = {
    "bandwidth": rf"{NUMBER} [kMGT]i?B/s\b",
    "rate": rf"{NUMBER}/s\b",
    "time": rf"{NUMBER} (?:ns|us|ms|s|min|h)\b",
    "percentage": rf"{NUMBER} %",
    "processor": r"(?<=\bhost:0, )[^,:]+",
    "recording": r"\bsession-\d{8}T\d{6}-\d+-\d+\b",
}
MEASURED_TEXT = re.compile("|".join(f"(?P<{kind}>{text})" for kind, text in MEASURED.items()))
AS_GOOD = MEASURED | {"processor": r"[^,:]+"}
RULE = re.compile(r"-+(?: {2,}-+)*")


def literal(text):
    return " {2,}".join(re.escape(part) for part in re.split(" {2,}", text))


def pattern_of_text(text):
    pattern = ""
    end = 0
    for measured in MEASURED_TEXT.finditer(text):
        pattern += literal(text[end : measured.start()]) + AS_GOOD[measured.lastgroup]
        end = measured.end()
    return pattern + literal(text[end:])


def pattern_of_row(cells, header, measured_columns):
    patterns = []
    for cell, column in zip(cells, header):
        if column in measured_columns:
            number = re.match(NUMBER, cell)
            patterns.append(NUMBER + literal(cell[number.end() :]) if number else literal(cell))
        elif column in EXACT_COLUMNS:
            patterns.append(literal(cell))
        else:
            patterns.append(pattern_of_text(cell))
    return " {2,}".join(patterns)


def cells_of(line):
    return re.split(" {2,}", line.strip())


def groups_of(shown, measured_columns):
    """Patterns of lines that follow each other, between "..."."""
    groups = [[]]
    header = before = []
    for line in shown:
        line = line.rstrip()
        cells = cells_of(line)
        if line == "...":
            groups.append([])
            continue
        if not line:
            header = []
        if RULE.fullmatch(line):
            header = before
            pattern = "-+" + " {2,}-+" * (len(cells) - 1)
        elif header and len(cells) == len(header):
            pattern = pattern_of_row(cells, header, measured_columns)
        else:
            pattern = pattern_of_text(line)
        before = cells
        groups[-1].append((line, re.compile(pattern)))
    return groups


def is_at(group, lines, at):
    return len(lines) - at >= len(group) and all(
        pattern.fullmatch(line) for (_, pattern), line in zip(group, lines[at:])
    )


def difference(shown, printed, measured_columns=()):
    """What is shown and was not printed; "" where all of it was."""
    while shown and not shown[-1].strip():
        shown = shown[:-1]
    lines = [line.rstrip() for line in printed]
    groups = groups_of(shown, measured_columns)
    at = 0
    for i, group in enumerate(groups):
        last = len(lines) - len(group)
        places = range(at, last + 1) if i > 0 else range(at, at + 1)
        if i == len(groups) - 1:
            places = [place for place in places if place == last]
        found = next((place for place in places if is_at(group, lines, place)), None)
        if found is None:
            return (
                "shown, and not printed"
                + (f" below line {at}" if at else "")
                + "".join(f"\n  | {line}" for line, _ in group)
                + "\nprinted"
                + "".join(f"\n  | {line}" for line in lines)
            )
        at = found + len(group)
    return ""
