#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the sources of a build, except on those that have passed as they are."""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import threading

DESCRIPTION = """Runs clang-tidy on the source files that a build compiles; prints what it finds.

A file is skipped when it has passed before as it is now: with the same text of the file and of all
headers of this repository that it includes, the same .clang-tidy, the same version of clang-tidy
and the same compiler flags. What has passed is remembered in two lists: tools/lint_passed.txt,
which is tracked, and lint_passed.txt in the build folder. A line that is missing from both, or that
a merge has mixed up, means only that the file is checked again."""

EXAMPLES = """examples:
  tools/lint.py --build build/cuda            checks what has changed
  tools/lint.py --build build/cuda --all      checks everything
  tools/lint.py --build build/cuda --record   the same as the first, then writes the tracked list"""

# Sources that clang 14 cannot read, and headers that no source includes.
EXEMPT = (
    "kernels/attention/host_native.cc",  # as the next
    "kernels/linear/host_native.cc",  # compiles itself once per instruction set, by rules of g++
    "tests/emulator/instrumented_library.h",  # included by a flag, in builds without a sanitizer
)

TRACKED_LIST = "tools/lint_passed.txt"
LIST_HEADER = """\
# Written by tools/lint.py --record: what clang-tidy has passed, as "<file> <sources> <flags>".
# <sources> is a hash of the file, of its headers and of how clang-tidy is set up, <flags> one of
# the compiler flags. A file stands here once for each set of flags that it was checked with.
"""

# Flags that a key holds: those that change the code which clang-tidy reads, or what it warns of.
# System folders are not among them: they come with the machine, not with a change.
KEY_FLAGS = re.compile(r"-[DUIWmx].*|-include|-std=.*|-fsanitize=.*")
# Flags that clang-tidy does without: what is written where, g++'s precompiled headers, and what
# cmake/reprise_unity.cmake adds.
DROPPED_FLAGS = re.compile(
    r"-c|-o.*|-M[DMPTFQGV]*|-Winvalid-pch|-fpch-.*|-Wno-subobject-linkage"
)
COMPILER = re.compile(r"(.*/)?(clang|gcc|cc|clang\+\+|g\+\+|c\+\+)(-\d+)?")
FLAGS_WITH_A_VALUE = ("-o", "-MF", "-MT", "-MQ", "-isystem", "-include", "-I", "-D", "-U", "-x")
# Also a header that a macro names, for an #include of that macro.
INCLUDE = re.compile(
    rb'^[ \t]*#[ \t]*(?:include[ \t]*[<"]([^>"\n]+)[>"]|define[ \t]+\w+[ \t]+"([^"\n]+\.h)")',
    re.MULTILINE,
)
HEADER_FLAG = re.compile(r'-D\w+="([^"]+\.h)"')


def short_hash(*parts):
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:16]


def pair_flags(arguments):
    """Compiler arguments as (flag, value), the value None where it is no word of its own."""
    words = iter(arguments)
    for word in words:
        yield (word, next(words, "")) if word in FLAGS_WITH_A_VALUE else (word, None)


def is_precompiled_header(flag, value):
    return flag == "-include" and os.path.basename(value).startswith("cmake_pch.h")


class Sources:
    """Files of the repository: their text, and what they include of each other."""

    def __init__(self, root):
        self.root = root

    @functools.cache
    def text(self, path):
        with open(path, "rb") as file:
            return file.read()

    @functools.cache
    def includes(self, path, folders):
        """The files that one file includes, as far as they lie in its folder or in `folders`."""
        found = []
        for included, named in INCLUDE.findall(self.text(path)):
            name = included or named
            for folder in (os.path.dirname(path), *folders):
                candidate = os.path.normpath(os.path.join(folder, os.fsdecode(name)))
                if os.path.isfile(candidate):
                    found.append(candidate)
                    break
        return found

    def closure(self, paths, folders):
        """`paths` and all that they include, directly or not, sorted."""
        seen = set()
        waiting = list(paths)
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                waiting.extend(self.includes(path, folders))
        return sorted(seen)


class Unit:
    """One compile command: a file, the flags for clang-tidy and the key of its present state."""

    def __init__(self, entry, root, build, sources, setup):
        self.directory = entry["directory"]
        self.path = os.path.normpath(os.path.join(self.directory, entry["file"]))
        self.name = os.path.relpath(self.path, root)
        words = entry.get("arguments") or shlex.split(entry["command"])
        # A compiler cache stands before the compiler, "cmake -E env" before that; none is a flag.
        programs = [at for at, word in enumerate(words) if COMPILER.fullmatch(word)]
        first = programs[0] + 1 if programs else 1
        flags = [
            (flag, value)
            for flag, value in pair_flags(words[first:])
            if flag != entry["file"] and not is_precompiled_header(flag, value)
        ]
        self.clang_flags = [
            word
            for flag, value in flags
            if not DROPPED_FLAGS.fullmatch(flag)
            for word in ((flag,) if value is None else (flag, value))
        ]
        self.files = sources.closure(*self.where_to_look(flags, root))
        texts = [sources.text(path) for path in self.files]

        def placeless(text):  # where the repository and its build lie is not for a key
            return text.replace(build, "<build>").replace(root, "<root>")

        self.sources_key = short_hash(setup, *map(placeless, self.files), *texts)
        kept = [
            flag + (value or "")
            for flag, value in flags
            if KEY_FLAGS.fullmatch(flag) and not DROPPED_FLAGS.fullmatch(flag)
        ]
        self.flags_key = short_hash(*(placeless(flag) for flag in kept if matters(flag, texts)))
        self.line = f"{self.name} {self.sources_key} {self.flags_key}"

    def where_to_look(self, flags, root):
        """The files that the command reads by name, and the folders of ours that it searches."""
        folders = []
        files = [self.path]
        for flag, value in flags:
            path = os.path.normpath(os.path.join(self.directory, value or flag[2:]))
            header = HEADER_FLAG.fullmatch(flag)
            if flag == "-include":
                files.append(path)
            elif header:
                files.append(os.path.join(root, header[1]))
            elif flag.startswith(("-I", "-isystem")) and path.startswith(root):
                folders.append(path)  # generated headers stand in a system folder of the build
        return files, tuple(folders)

    def check(self, clang_tidy):
        """What clang-tidy says about this file; nothing if it passes."""
        command = [clang_tidy, "--quiet", self.path, "--", *self.clang_flags]
        run = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, check=False
        )
        if run.returncode == 0:
            return ""
        return run.stdout + (run.stderr if ": error:" not in run.stdout else "")


def matters(flag, texts):
    """False for a definition of ours that none of these texts mentions."""
    name = re.match(r"-D(REPRISE_\w+)", flag)
    return name is None or any(name[1].encode() in text for text in texts)


def unseen_headers(root, units):
    """Headers that neither these units nor other .cc files include: nobody checks them."""
    ours = [path for path in root.glob("[a-z]*/**/*") if path.relative_to(root).parts[0] != "build"]
    sources = [str(path) for path in ours if path.suffix == ".cc"]
    seen = set(Sources(str(root)).closure(sources, (str(root),)))
    seen.update(path for unit in units for path in unit.files)
    headers = [str(path) for path in ours if path.suffix == ".h"]
    names = (os.path.relpath(path, root) for path in headers if path not in seen)
    return sorted(name for name in names if name not in EXEMPT)


def read_list(path):
    """The lines of a list of passed files, without comments and what a merge may leave."""
    if not path.exists():
        return set()
    lines = path.read_text().splitlines()
    return {line for line in lines if re.fullmatch(r"\S+ [0-9a-f]{16} [0-9a-f]{16}", line)}


def write_list(path, lines):
    path.write_text(LIST_HEADER + "".join(f"{line}\n" for line in sorted(lines)))


def recorded_lines(old, units):
    """What the tracked list shall hold once all units have passed.

    Lines for the present text of a file stay though their flags are others: another build's, which
    has what this machine lacks.
    """
    present = {(unit.name, unit.sources_key) for unit in units}
    kept = {line for line in old if tuple(line.split()[:2]) in present}
    return kept | {unit.line for unit in units}


def clang_tidy_setup(clang_tidy, root):
    """What decides about findings besides the sources: the version, and all of .clang-tidy."""
    text = subprocess.run([clang_tidy, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"version \S+", text.stdout)
    return short_hash(version[0], (root / ".clang-tidy").read_bytes())


def commands_of(build):
    """Compile commands of single files: those of a unity build are one for each file of a group."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        group = pathlib.Path(entry["directory"], entry["file"])
        if group.parent.name != "Unity":
            yield entry
            continue
        for file in re.findall(r'^#include "(.+)"$', group.read_text(), re.MULTILINE):
            words = entry.get("arguments") or shlex.split(entry["command"])
            arguments = [file if word == entry["file"] else word for word in words]
            yield {"directory": entry["directory"], "file": file, "arguments": arguments}


def units_of(build, root, setup):
    """Every compile command of a file in the repository that clang-tidy can read, each once."""
    sources = Sources(str(root))
    units = {}
    for entry in commands_of(build):
        path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        name = os.path.relpath(path, root)
        ours = not name.startswith("..") and not path.startswith(f"{build}{os.sep}")
        if ours and path.endswith(".cc") and name not in EXEMPT:
            unit = Unit(entry, str(root), str(build), sources, setup)
            units.setdefault(unit.line, unit)
    return sorted(units.values(), key=lambda unit: -len(unit.files))


def check_all(units, clang_tidy, jobs, passed_list):
    """Checks units, remembers at once each that passes, and returns the names of the others."""
    failed = []
    lock = threading.Lock()

    def check(unit):
        output = unit.check(clang_tidy)
        with lock:
            if output:
                failed.append(unit.name)
                print(output, flush=True)
            else:
                with passed_list.open("a") as file:
                    file.write(f"{unit.line}\n")

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(check, units))
    return sorted(set(failed))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--build", required=True, help="build folder with compile_commands.json")
    parser.add_argument("--all", action="store_true", help="check what has passed before, too")
    parser.add_argument(
        "--record", action="store_true", help=f"when all files pass, write {TRACKED_LIST}"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="files at a time")
    parser.add_argument("--clang-tidy", default="clang-tidy", help="the program to run")
    parser.add_argument(
        "--root",
        default=pathlib.Path(__file__).resolve().parent.parent,
        help="the repository, if it is not the one that holds this script",
    )
    return parser.parse_args()


def main():
    options = parse_arguments()
    root = pathlib.Path(options.root).resolve()
    build = pathlib.Path(options.build).resolve()
    if not (build / "compile_commands.json").exists():
        sys.exit(f"lint.py: {build} has no compile_commands.json; configure a preset first")
    units = units_of(build, root, clang_tidy_setup(options.clang_tidy, root))
    unseen = unseen_headers(root, units)
    if unseen:
        sys.exit(f"lint.py: no .cc file includes these headers: {', '.join(unseen)}")
    tracked, local = root / TRACKED_LIST, build / "lint_passed.txt"
    passed = set() if options.all else read_list(tracked) | read_list(local)
    todo = [unit for unit in units if unit.line not in passed]
    print(f"clang-tidy: {len(todo)} of {len(units)} files to check", flush=True)
    present = {unit.line for unit in units}
    write_list(local, (read_list(local) & present) - {unit.line for unit in todo})
    failed = check_all(todo, options.clang_tidy, options.jobs, local)
    if failed:
        sys.exit(f"lint.py: clang-tidy has findings in {len(failed)} files: {', '.join(failed)}")
    if options.record:
        write_list(tracked, recorded_lines(read_list(tracked), units))


if __name__ == "__main__":
    main()
