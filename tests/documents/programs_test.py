#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the programs that docs/embedding.md shows, by the commands that it shows.

usage: programs_test.py --source REPOSITORY --build BUILD --prefix INSTALLATION --libdir DIR
                        --cc COMPILER --cxx COMPILER --python PYTHON [--nvcc COMPILER]

A block whose first line names a file is that file. Commands are tried in the page's order, against
the development files that are installed in INSTALLATION. What a program is said to print, it
prints. Without --nvcc CUDA programs are not compiled; without a GPU they must say that there is
none. Names what was not tried.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import markdown

PAGE = "docs/embedding.md"
FILE = re.compile(r"(?://|#) ([\w.]+)$")
TIMEOUT_S = 300


class Failure(Exception):
    pass


def has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return done.stdout.startswith("GPU ")


class Page:
    def __init__(self, arguments, scratch):
        self.arguments = arguments
        self.scratch = scratch
        self.tools = {"cc": arguments.cc, "c++": arguments.cxx, "nvcc": arguments.nvcc,
                      "python3": arguments.python}  # fmt: skip
        library = arguments.prefix / arguments.libdir
        self.environment = {
            **os.environ,
            "PKG_CONFIG_PATH": str(library / "pkgconfig"),
            "LD_LIBRARY_PATH": str(library),
            "PYTHONPATH": str(scratch / "site"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.not_tried = []
        self.num_tried = 0
        self.said = ""
        self.expects = False  # whether the next block says what a program prints
        (scratch / "examples").symlink_to(arguments.source / "examples")

    def run(self, command, expected=0):
        done = subprocess.run(
            command, shell=True, cwd=self.scratch, env=self.environment, capture_output=True,
            text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != expected:
            raise Failure(f"{command}\n  exit code {done.returncode}\n{done.stdout}{done.stderr}")
        self.num_tried += 1
        self.said = done.stdout

    def install_wheel(self):
        maker = self.arguments.source / "tools/package_wheel.py"
        self.run(f"{sys.executable} {maker} --build {self.arguments.build} --out dist")
        with zipfile.ZipFile(next((self.scratch / "dist").glob("*.whl"))) as wheel:
            wheel.extractall(self.scratch / "site")

    def command(self, line):
        """Tries one, or says why not."""
        word = line.split()[0]
        if word in ("cmake",) or word.startswith("tools/"):
            return  # commands_test.py tries these
        if word == "pip":
            self.install_wheel()
        elif word == "./axpy" and not has_gpu():
            if self.arguments.nvcc:
                self.run(line, expected=1)
                if "UNAVAILABLE: device 'cuda'" not in self.said:
                    raise Failure(f"{line}: without a GPU it said {self.said}")
            self.not_tried.append(f"{line} (no GPU)")
            self.said = None
        elif word.startswith("./"):
            self.run(line)
        elif word not in self.tools:
            raise Failure(f"no rule for {line}")
        elif "axpy" in line and not self.arguments.nvcc:
            self.not_tried.append(f"{line} (no nvcc)")
        elif word == "python3" and not self.has_numpy():
            self.not_tried.append(f"{line} (no numpy)")
        else:
            self.run(f"{self.tools[word]}{line[len(word):]}")

    def has_numpy(self):
        words = [self.arguments.python, "-c", "import numpy"]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def block(self, block):
        first = FILE.match(block.text.split("\n")[0])
        if first:
            (self.scratch / first.group(1)).write_text(block.text + "\n")
        elif block.language == "indented":
            for line in block.text.split("\n"):
                self.command(line)
        elif self.follows(block, "It prints") and self.said is not None:
            if self.said.strip() != block.text.strip():
                raise Failure(f"it printed\n{self.said}")

    def follows(self, block, words):
        lines = (self.arguments.source / PAGE).read_text().split("\n")
        above = [line for line in lines[: int(block.place.split(":")[1]) - 1] if line]
        return above[-1] == words

    def cmake(self):
        """The project that the page shows, once its files are there."""
        self.run(f"cmake -B project -DCMAKE_PREFIX_PATH={self.arguments.prefix} "
                 f"-DCMAKE_C_COMPILER={self.arguments.cc} "
                 f"-DCMAKE_CXX_COMPILER={self.arguments.cxx}")  # fmt: skip
        self.run("cmake --build project")
        self.run("project/generate examples/byte-llama")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("source", "build", "prefix"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("libdir", "cc", "cxx", "python"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--nvcc", default="")
    arguments = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory() as directory:
        page = Page(arguments, pathlib.Path(directory))
        for block in markdown.blocks(arguments.source, arguments.source / PAGE):
            try:
                page.block(block)
            except (Failure, subprocess.TimeoutExpired) as failure:
                failures.append(f"{block.place}: {failure}")
        try:
            page.cmake()
        except (Failure, subprocess.TimeoutExpired) as failure:
            failures.append(f"{PAGE}: {failure}")
        for line in page.not_tried:
            print(f"not tried: {line}")
        print("\n".join(failures) or f"{page.num_tried} commands ran")
        return 1 if failures or page.num_tried < 5 else 0


if __name__ == "__main__":
    sys.exit(main())
