#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the checker: tools/kernel_resources.py must refuse code that breaks its rules. Usage:
--build DIR --shapes PROGRAM --source DIR.
"""

import argparse
import dataclasses
import importlib
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
device_code = kernel_resources = None


class DoctoredCode(unittest.TestCase):
    """Copies of the build's code, changed."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.build = pathlib.Path(scratch.name)
        self.folder = self.build / "kernels" / "device_code"
        self.folder.mkdir(parents=True)
        for path in (pathlib.Path(OPTIONS.build) / "kernels" / "device_code").glob("*.bin"):
            shutil.copy(path, self.folder)

    def check(self):
        """(exit status, what it printed) of the script as a user runs it."""
        command = [sys.executable, pathlib.Path(OPTIONS.source) / "tools" / "kernel_resources.py",
                   "--check"]
        run = subprocess.run(command + ["--build", self.build, "--shapes", OPTIONS.shapes],
                             capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr

    def code(self, vendor):
        """The linear layers' code, beside which there is no other vendor's: that takes time."""
        path = self.folder / f"reprise_{vendor}_linear_linear_kernels.bin"
        if not path.exists():
            self.skipTest(f"this build has no code for {vendor}")
        for other in self.folder.glob("reprise_*.bin"):
            if not other.name.startswith(f"reprise_{vendor}_"):
                other.unlink()
        return path

    def test_untouched_copy_passes(self):
        vendor = "cuda" if list(self.folder.glob("reprise_cuda_*.bin")) else "hip"
        self.code(vendor)
        status, text = self.check()
        self.assertEqual(status, 0, text)

    def test_kernel_without_hmma_is_refused(self):
        path = self.code("cuda")
        data = bytearray(path.read_bytes())
        header, size = struct.unpack_from("<IQ", data, 20)  # of the first entry, at 16
        start = 16 + header
        sections = dict(device_code.Elf(bytes(data[start : start + size]), "entry").sections)
        text = sections[".text.reprise_linear_matrix_bf16_16"]
        replaced = 0
        for at in range(start + text[4], start + text[4] + text[5], 16):
            if struct.unpack_from("<Q", data, at)[0] & 0xFFF == 0x23C:
                struct.pack_into("<Q", data, at, 0x7918)  # NOP
                replaced += 1
        self.assertGreater(replaced, 0)
        path.write_bytes(data)
        status, text = self.check()
        self.assertEqual(status, 1, text)
        self.assertIn("sm_80: reprise_linear_matrix_bf16_16 has no matrix instruction", text)
        self.assertNotIn("sm_90a: ", text)

    def test_amd_code_without_matrix_instructions_is_refused(self):
        path = self.code("hip")
        data = bytearray(path.read_bytes())
        (count,) = struct.unpack_from("<Q", data, 24)
        at, targets = 32, []
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, at)
            triple = data[at + 24 : at + 24 + length].decode()
            at += 24 + length
            if size == 0 or not triple.startswith("hip"):
                continue
            targets.append(triple.rsplit("-", 1)[-1])
            text = dict(device_code.Elf(bytes(data[offset : offset + size]),
                                        triple).sections)[".text"]
            begin = offset + text[4]
            # s_nop 0
            data[begin : begin + text[5]] = struct.pack("<I", 0xBF800000) * (text[5] // 4)
        path.write_bytes(data)
        status, text = self.check()
        self.assertEqual(status, 1, text)
        self.assertGreater(len(targets), 0)
        for target in targets:
            for kernel in ("bf16_16", "f16_whole"):
                self.assertIn(f"{target}: reprise_linear_matrix_{kernel} has no matrix instruction",
                              text)

    def test_missing_kernels_are_named(self):
        vendor = "cuda" if list(self.folder.glob("reprise_cuda_*.bin")) else "hip"
        self.code(vendor).unlink()
        status, text = self.check()
        self.assertEqual(status, 1, text)
        self.assertIn("reprise_linear_matrix_f16_64 of the catalogue is not compiled", text)

    def test_build_without_code_is_an_error(self):
        shutil.rmtree(self.folder)
        status, text = self.check()
        self.assertEqual(status, 2, text)
        self.assertIn("build the preset cuda or hip first", text)

    def test_damaged_files_are_errors(self):
        for path in sorted(self.folder.glob("reprise_*_silu_mul_kernels.bin")):
            whole = path.read_bytes()
            path.write_bytes(b"\0" * 64)
            status, text = self.check()
            self.assertEqual(status, 2, text)
            self.assertIn(path.name, text)
            path.write_bytes(whole)


class Rules(unittest.TestCase):
    """The rules on descriptions of kernels."""

    @classmethod
    def setUpClass(cls):
        cls.build = device_code.read_build(OPTIONS.build)  # takes seconds
        cls.printed = subprocess.run([OPTIONS.shapes], capture_output=True, check=True).stdout

    def setUp(self):
        self.targets = {target: dict(kernels) for target, kernels in self.build.items()}
        self.shapes = json.loads(self.printed)
        self.target = sorted(self.targets)[0]
        self.kernels = self.targets[self.target]
        self.unit = self.shapes["units"][kernel_resources.matrix_unit(self.target)]

    def findings(self):
        return kernel_resources.findings(self.targets, self.shapes)

    def test_more_kernels_than_the_budget_are_refused(self):
        kernel = next(iter(self.kernels.values()))
        present = kernel_resources.present_kernels(self.kernels, self.unit)
        for i in range(self.unit["budget"] - len(present) + 1):
            self.kernels[f"extra_{i}"] = dataclasses.replace(kernel, name=f"extra_{i}")
        self.assertTrue(any("compiled kernels; allowed" in line for line in self.findings()))
        self.assertTrue(
            any("extra_0 is compiled but not expected" in line for line in self.findings()))

    def test_kernels_that_do_not_fit_must_be_empty(self):
        name = "reprise_linear_matrix_bf16_16"
        size = self.unit["dynamic_shared_bytes"].pop(name)
        self.unit["empty"].append(name)
        self.assertEqual(len(self.findings()), 1)
        self.assertIn(f"{self.target}: {name} does not fit the target and must be empty",
                      self.findings()[0])
        self.kernels[name] = dataclasses.replace(
            self.kernels[name], code_bytes=4, matrix_instructions=0, static_shared_bytes=0)
        self.assertEqual(self.findings(), [])
        del self.kernels[name]
        self.assertEqual(self.findings(), [])
        self.unit["empty"].remove(name)
        self.unit["dynamic_shared_bytes"][name] = size
        self.assertEqual(self.findings(),
                         [f"{self.target}: {name} of the catalogue is not compiled"])

    def test_scratch_is_refused(self):
        name = "reprise_linear_matrix_bf16_16"
        self.kernels[name] = dataclasses.replace(self.kernels[name], scratch_bytes=32)
        self.assertEqual(self.findings(), [
            f"{self.target}: {name} takes 32 bytes of scratch memory per thread; allowed: 0"])

    def test_spilled_scalars_are_refused(self):
        name = "reprise_attention_decode_matrix_bf16_64"
        self.kernels[name] = dataclasses.replace(self.kernels[name], spilled_scalars=300)
        self.assertEqual(len(self.findings()), 1)
        self.assertIn("spills 300 scalar registers", self.findings()[0])

    def test_target_without_code_is_refused(self):
        found = kernel_resources.findings(self.targets, self.shapes, [self.target, "gfx1201"])
        self.assertEqual(found, ["gfx1201: no kernel is compiled for it"])


class Occupancy(unittest.TestCase):
    """Cases worked out by hand from the limits in the vendors' documents."""

    def occupancy(self, target, threads, registers, static=0, dynamic=0):
        kernel = device_code.Kernel(target, "k", threads, registers, 0, 32, static, 0, 0, 0, 0)
        blocks, warps, _, limiter = kernel_resources.occupancy(kernel, dynamic)
        return blocks, warps, limiter

    def test_nvidia(self):
        self.assertEqual(self.occupancy("sm_90a", 256, 32), (8, 64, "threads"))
        # 128 x 256 = half of 65536
        self.assertEqual(self.occupancy("sm_90a", 256, 128), (2, 16, "registers"))
        self.assertEqual(self.occupancy("sm_90a", 256, 129), (1, 8, "registers"))
        # 2 x (113 + 1) KB = 228 KB
        self.assertEqual(self.occupancy("sm_90a", 128, 32, 0, 113 * 1024), (2, 8, "shared memory"))
        self.assertEqual(self.occupancy("sm_80", 128, 32, 0, 113 * 1024), (1, 4, "shared memory"))
        self.assertEqual(self.occupancy("sm_80", 128, 32, 0, 164 * 1024), (0, 0, "shared memory"))

    def test_amd(self):
        self.assertEqual(self.occupancy("gfx90a", 256, 64), (8, 32, "threads"))
        # 512 / 128 warps of a SIMD
        self.assertEqual(self.occupancy("gfx90a", 256, 128), (4, 16, "registers"))
        self.assertEqual(self.occupancy("gfx942", 256, 32, 1024, 31 * 1024),
                         (2, 8, "shared memory"))
        self.assertEqual(self.occupancy("gfx942", 256, 32, 1024, 64 * 1024),
                         (0, 0, "shared memory"))
        # 1536 / 96 = 16 warps of a SIMD
        self.assertEqual(self.occupancy("gfx1100", 128, 96), (16, 64, "threads"))
        self.assertEqual(self.occupancy("gfx1100", 128, 256), (5, 20, "registers"))  # 1536 / 264


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--source", required=True)
    OPTIONS, rest = parser.parse_known_args()
    sys.path.insert(0, str(pathlib.Path(OPTIONS.source) / "tools"))
    device_code = importlib.import_module("device_code")
    kernel_resources = importlib.import_module("kernel_resources")
    unittest.main(argv=[sys.argv[0], *rest])
