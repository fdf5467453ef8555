#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tools/lint.py on a small repository, with a stand-in for clang-tidy."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None

# Finds fault with a file that says BAD, and writes down what it was asked to check.
FAKE_CLANG_TIDY = """#!/bin/sh
if [ "$1" = --version ]; then echo "LLVM version $(cat {version})"; exit 0; fi
echo "$@" >>{log}
if grep -q BAD "$2"; then echo "$2:1:1: error: BAD [bugprone-bad]"; exit 1; fi
"""

# b.cc reaches low.h through mid.h; a.cc and c.cc do not.
FILES = {
    ".clang-tidy": "Checks: '*'\n",
    "runtime/low.h": "int low();\n",
    "runtime/mid.h": '#include "runtime/low.h"\n',
    "runtime/other.h": "int other();\n",
    "runtime/a.cc": '#include <vector>\n#include "other.h"\n',
    "runtime/b.cc": '#include "runtime/mid.h"\nint cuda = REPRISE_WITH_CUDA;\n',
    "tests/c.cc": '#  include "reprise/v1/generated.pb.h"\n',
    "tests/forced.h": "int forced();\n",
    "tools/lint_passed.txt": "",
    "build/test/proto/reprise/v1/generated.pb.h": "int generated();\n",
}


class Lint(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name).resolve()
        self.root = self.scratch / "repository"
        for name, text in FILES.items():
            self.write(name, text)
        self.version = self.scratch / "version"
        self.version.write_text("14.0.6\n")
        self.log = self.scratch / "log"
        self.clang_tidy = self.scratch / "clang-tidy"
        self.clang_tidy.write_text(FAKE_CLANG_TIDY.format(log=self.log, version=self.version))
        self.clang_tidy.chmod(0o755)
        self.configure()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def append(self, name):
        with (self.root / name).open("a") as file:
            file.write("// changed\n")

    def configure(self, *more, files=("runtime/a.cc", "runtime/b.cc", "tests/c.cc"), flags=""):
        """Writes compile_commands.json: a command per file, and those of `more`, (file, flags)."""
        build = self.root / "build/test"
        commands = [
            {
                "directory": str(build),
                "file": str(self.root / name),
                "command": "/usr/bin/cmake -E env CCACHE_SLOPPINESS=none /usr/bin/ccache "
                f"/usr/bin/c++ -I{self.root} -isystem proto -O3 "
                f"-include {self.root}/tests/forced.h -std=c++20 {own} -Winvalid-pch "
                f"-include {build}/cmake_pch.hxx -o {name}.o -c {self.root / name}",
            }
            for name, own in [*((name, flags) for name in files), *more]
        ]
        (build / "compile_commands.json").write_text(json.dumps(commands))

    def run_lint(self, *arguments, status=0):
        """Names of the files that were checked, in order, each as often as it was."""
        self.log.write_text("")
        script = pathlib.Path(OPTIONS.source) / "tools/lint.py"
        command = [sys.executable, "-B", script, "--root", self.root, "--jobs", "2"]
        command += ["--build", self.root / "build/test", "--clang-tidy", self.clang_tidy]
        run = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        self.output = run.stdout + run.stderr
        self.assertEqual(run.returncode, status, self.output)
        paths = (line.split()[1] for line in self.log.read_text().splitlines())
        return sorted(str(pathlib.Path(path).relative_to(self.root)) for path in paths)

    def tracked(self):
        return (self.root / "tools/lint_passed.txt").read_text()

    def test_what_has_passed_is_not_checked_again(self):
        self.assertEqual(self.run_lint(), ["runtime/a.cc", "runtime/b.cc", "tests/c.cc"])
        self.assertEqual(self.run_lint(), [])
        self.assertEqual(self.run_lint("--all"), ["runtime/a.cc", "runtime/b.cc", "tests/c.cc"])

    def test_changed_header_brings_back_exactly_the_files_that_include_it(self):
        self.run_lint()
        self.append("runtime/low.h")
        self.assertEqual(self.run_lint(), ["runtime/b.cc"])
        self.append("runtime/other.h")
        self.assertEqual(self.run_lint(), ["runtime/a.cc"])
        self.append("build/test/proto/reprise/v1/generated.pb.h")
        self.assertEqual(self.run_lint(), ["tests/c.cc"])

    def test_changed_source_is_checked_alone(self):
        self.run_lint()
        self.append("runtime/b.cc")
        self.assertEqual(self.run_lint(), ["runtime/b.cc"])

    def test_header_included_by_a_flag_counts(self):
        self.run_lint()
        self.append("tests/forced.h")
        self.assertEqual(self.run_lint(), ["runtime/a.cc", "runtime/b.cc", "tests/c.cc"])

    def test_header_that_a_macro_names_counts(self):
        self.write("runtime/target.h", '#define REPRISE_LAYER "runtime/layer.h"\n')
        self.write("runtime/layer.h", "int layer();\n")
        self.configure(("runtime/b.cc", "-DREPRISE_TARGET='\"runtime/target.h\"'"),
                       files=("runtime/a.cc", "tests/c.cc"))
        self.run_lint()
        for header in ("runtime/target.h", "runtime/layer.h"):
            self.append(header)
            self.assertEqual(self.run_lint(), ["runtime/b.cc"])

    def test_changed_configuration_or_version_brings_back_all(self):
        self.run_lint()
        self.append(".clang-tidy")
        self.assertEqual(self.run_lint(), ["runtime/a.cc", "runtime/b.cc", "tests/c.cc"])
        self.version.write_text("15.0.0\n")
        self.assertEqual(self.run_lint(), ["runtime/a.cc", "runtime/b.cc", "tests/c.cc"])

    def test_file_with_a_finding_is_printed_and_not_remembered(self):
        self.write("runtime/a.cc", '#include "other.h"  // BAD\n')
        self.run_lint("--record", status=1)
        self.assertIn("bugprone-bad", self.output)
        self.assertIn("findings in 1 files: runtime/a.cc", self.output)
        self.assertEqual(self.tracked(), "")
        self.assertEqual(self.run_lint(status=1), ["runtime/a.cc"])
        self.write("runtime/a.cc", '#include "other.h"\n')
        self.assertEqual(self.run_lint(), ["runtime/a.cc"])

    def test_finding_in_a_file_that_had_passed_is_remembered(self):
        self.run_lint()
        self.clang_tidy.write_text(self.clang_tidy.read_text().replace("BAD", "vector"))
        self.run_lint("--all", status=1)
        self.assertEqual(self.run_lint(status=1), ["runtime/a.cc"])

    def test_recorded_list_serves_a_clone_elsewhere(self):
        self.run_lint("--record")
        names = [line.split()[0] for line in self.tracked().splitlines() if line[0] != "#"]
        self.assertEqual(names, ["runtime/a.cc", "runtime/b.cc", "tests/c.cc"])
        (self.root / "build/test/lint_passed.txt").unlink()
        clone = self.scratch / "clone"
        shutil.move(self.root, clone)
        self.root = clone
        self.configure()
        self.assertEqual(self.run_lint(), [])

    def test_recording_drops_what_is_out_of_date(self):
        self.run_lint("--record")
        before = self.tracked()
        self.append("runtime/b.cc")
        self.assertEqual(self.run_lint("--record"), ["runtime/b.cc"])
        self.assertEqual(len(self.tracked().splitlines()), len(before.splitlines()))
        self.assertNotEqual(self.tracked(), before)

    def test_damaged_list_only_means_more_checks(self):
        self.run_lint("--record")
        (self.root / "build/test/lint_passed.txt").unlink()
        lines = self.tracked().replace("runtime/b.cc ", "<<<<<<< ours\nruntime/b.cc 1")
        self.write("tools/lint_passed.txt", lines)
        self.assertEqual(self.run_lint(), ["runtime/b.cc"])

    def test_definition_counts_where_the_code_mentions_it(self):
        self.configure(flags="-DREPRISE_WITH_CUDA=1")
        self.run_lint("--record")
        self.configure(flags="-DREPRISE_WITH_CUDA=0")
        self.assertEqual(self.run_lint("--record"), ["runtime/b.cc"])
        # The list now holds both; neither build pushes the other's line out.
        self.assertEqual(self.tracked().count("runtime/b.cc "), 2)

    def test_flags_that_only_shape_the_machine_code_do_not_count(self):
        self.run_lint()
        self.configure(flags="-O1 -g1 -fno-omit-frame-pointer -isystem /opt/cuda/include")
        self.assertEqual(self.run_lint(), [])
        self.configure(flags="-DNDEBUG")
        self.assertEqual(self.run_lint(), ["runtime/a.cc", "runtime/b.cc", "tests/c.cc"])

    def test_file_compiled_twice_is_checked_with_both_sets_of_flags(self):
        self.configure(("runtime/a.cc", "-DTWICE"), ("runtime/a.cc", "-O1"))
        self.assertEqual(self.run_lint().count("runtime/a.cc"), 2)
        self.assertEqual(self.run_lint(), [])

    def test_files_of_a_unity_build_are_checked_singly_and_known_from_other_builds(self):
        self.run_lint()
        build = self.root / "build/test"
        group = build / "Unity/unity_0_cxx.cxx"
        group.parent.mkdir()
        files = [self.root / name for name in ("runtime/a.cc", "runtime/b.cc")]
        group.write_text("".join(f'/* made */\n#include "{file}"\n\n' for file in files))
        self.configure((str(group), "-Wno-subobject-linkage"), files=("tests/c.cc",))
        self.assertEqual(self.run_lint(), [])
        self.assertEqual(self.run_lint("--all"), ["runtime/a.cc", "runtime/b.cc", "tests/c.cc"])
        self.append("runtime/b.cc")
        self.assertEqual(self.run_lint(), ["runtime/b.cc"])

    def test_clang_is_spared_what_only_gcc_understands(self):
        self.run_lint()
        flags = self.log.read_text()
        self.assertNotIn("cmake_pch", flags)
        self.assertNotIn("-Winvalid-pch", flags)
        self.assertNotIn(" -o ", flags)
        self.assertIn(f"-- -I{self.root} -isystem proto -O3 -include", flags)

    def test_header_that_no_source_includes_is_refused(self):
        self.write("tests/lonely.h", "int lonely();\n")
        self.run_lint(status=1)
        self.assertIn("no .cc file includes these headers: tests/lonely.h", self.output)

    def test_folder_without_compile_commands_is_refused(self):
        (self.root / "build/test/compile_commands.json").unlink()
        self.run_lint(status=1)
        self.assertIn("has no compile_commands.json", self.output)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="the repository that holds tools/lint.py")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
