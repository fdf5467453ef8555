#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/mutate_kernels.py lists a mutation for every barrier of the kernels, and each is compiled
and tested where it can be noticed. Runs no mutation.

usage: mutate_kernels_test.py --source REPOSITORY
"""

import argparse
import fnmatch
import importlib
import pathlib
import re
import subprocess
import sys
import unittest
import unittest.mock

OPTIONS = None
mutate_kernels = None

# What orders accesses, by the names of kernels/device/thread.h and matrix_group.h, where it is
# called for that alone: no definition, and no value that is used.
ORDER = re.compile(
    r"(?<!void )(?<!= )\b(?:Sync(?!hronize)\w*|Barrier(?:Init|Arrive|Wait)\w*|WaitAtLeast\w*"
    r"|Atomic\w*Release|FenceDevice|FinishSharedReads|CopyAsync(?:Wait|Commit)|WaitForPrevious"
    r"|Begin(?:InOrder|First))(?:<[^;()]*>)?\("
)
# It only paces those who wait: tools/mutate_kernels.py.
NEEDS_NO_ORDER = "BarrierWaitForEither("


def orders(text: str) -> list[int]:
    """The lines of a kernel's body that order accesses."""
    code = re.sub(r"//.*", "", text)
    return [
        code.count("\n", 0, match.start()) + 1
        for match in ORDER.finditer(code)
        if match.group() != NEEDS_NO_ORDER
    ]


def read_with(source: pathlib.Path, file: str) -> set[str]:
    """The file and all of the kernels' that it includes, one through another."""
    found, left = set(), [file]
    while left:
        name = left.pop()
        if name in found or not (source / name).exists():
            continue
        found.add(name)
        left += re.findall(r'#include "(kernels/[^"]+)"', (source / name).read_text())
    return found


class List(unittest.TestCase):
    def setUp(self):
        script = OPTIONS.source / "tools/mutate_kernels.py"
        run = subprocess.run([sys.executable, script, "--list"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.places = set()
        for line in run.stdout.splitlines():
            place = re.match(r"([\w/.]+):(\d+): ", line)
            self.assertIsNotNone(place, line)
            self.places.add((place.group(1), int(place.group(2))))

    def bodies(self):
        return [
            file
            for file in sorted((OPTIONS.source / "kernels").glob("*/*.h"))
            if file.parent.name != "device"
        ]

    def test_has_every_folder_with_barriers(self):
        folders = {file.parent.name for file in self.bodies() if orders(file.read_text())}
        self.assertLessEqual({"attention", "experts", "linear", "mamba", "step_kernel"}, folders)
        listed = {name.split("/")[1] for name, _ in self.places}
        self.assertEqual(folders - listed, set(), "bring FAMILIES up to date")

    def test_has_every_barrier(self):
        missing = []
        for file in self.bodies():
            name = str(file.relative_to(OPTIONS.source))
            for line in orders(file.read_text()):
                if (name, line) not in self.places:
                    missing.append(f"{name}:{line}")
        self.assertEqual(missing, [], "no mutation: bring FAMILIES and SYNC up to date")

    def test_has_what_blocks_share_and_lane_maps(self):
        files = {name for name, _ in self.places}
        for name in ("gpu/block.h", "last_arriver.h", "matrix_mma.h", "matrix_mfma.h",
                     "matrix_wmma.h"):  # fmt: skip
            self.assertIn(f"kernels/device/{name}", files)


class Mutations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.removals = list(mutate_kernels.removals())
        cls.swaps = list(mutate_kernels.swaps())

    def test_change_the_file_in_one_place(self):
        for mutation in self.removals + self.swaps:
            text = (OPTIONS.source / mutation.path).read_text()
            self.assertNotEqual(mutation.text, text, mutation.name())
            before = text.splitlines()[: mutation.line - 1]
            self.assertEqual(mutation.text.splitlines()[: mutation.line - 1], before)

    def test_are_of_what_one_of_their_ops_includes(self):
        read = {}
        for mutation in self.removals:
            for op in mutation.ops:
                if op not in read:
                    source = f"kernels/{op}/{op}_kernels.cc"
                    self.assertTrue((OPTIONS.source / source).exists(), source)
                    read[op] = read_with(OPTIONS.source, source)
            self.assertTrue(
                any(mutation.path in read[op] for op in mutation.ops),
                f"{mutation.name()}: not in {', '.join(mutation.ops)}",
            )

    def test_are_tested_by_suites_that_there_are(self):
        suites = {}
        for mutation in self.removals + self.swaps:
            if mutation.program not in suites:
                text = "".join(
                    file.read_text()
                    for file in (OPTIONS.source / "tests" / mutation.program).glob("*.cc")
                )
                suites[mutation.program] = set(
                    re.findall(r"\nTEST_P\(\s*(\w+),\s*(\w+)\)", text)
                )
            for tests in mutation.tests.split(":"):
                # Without what stands for the device and the dtype.
                pattern = tests.rsplit("_", 1)[0] if "*_" in tests else tests
                self.assertTrue(
                    any(
                        fnmatch.fnmatchcase(f"EveryDevice/{suite}.{name}/", f"{pattern}*")
                        for suite, name in suites[mutation.program]
                    ),
                    f"tests/{mutation.program} has no {tests}",
                )

    def test_of_what_the_step_kernel_alone_runs_are_tested_with_it(self):
        path = "kernels/attention/decode_bulk_body.h"
        ops = {m.ops for m in self.removals if m.path == path}
        self.assertEqual(ops, {("attention",), ("step_kernel",)})

    def test_of_text_that_is_there_twice_are_refused_together(self):
        swaps = [
            mutate_kernels.Swap("matrix_mfma.h", "mfma", "return Lane() & 15;", ""),
            mutate_kernels.Swap("matrix_wmma.h", "wmma", "no such text", ""),
        ]
        with unittest.mock.patch.object(mutate_kernels, "SWAPS", swaps):
            with self.assertRaises(SystemExit) as refused:
                list(mutate_kernels.swaps())
        lines = refused.exception.code.split("\n")
        self.assertEqual(len(lines), 2, lines)
        self.assertIn('matrix_mfma.h: "return Lane() & 15;" is there 2 times', lines[0])
        self.assertIn('matrix_wmma.h: "no such text" is there 0 times', lines[1])


class Orders(unittest.TestCase):
    def test_are_known_by_their_calls(self):
        text = """a
  SyncWarp();  // SyncBlock();
  REPRISE_FN void SyncMerge() {
  BarrierWaitForEither(a, b, 0);
  looks = AtomicMaxRelease(known, 1) != 1;
  if (Lane() == 0) AtomicAddRelease(word, 1u);
  block_.Sync();
  CopyAsyncWait<kStages - 2>();
  stream.Synchronize();
"""
        self.assertEqual(orders(text), [2, 6, 7, 8])


def main():
    global OPTIONS, mutate_kernels
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    OPTIONS, rest = parser.parse_known_args()
    sys.path.insert(0, str(OPTIONS.source / "tools"))
    mutate_kernels = importlib.import_module("mutate_kernels")
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
