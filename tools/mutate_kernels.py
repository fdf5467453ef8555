#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks kernels on purpose and sees whether the tests under emulation notice.

Each mutation removes one barrier, wait or fence from a copy of a kernel body, counts arrivals
without an atomic, or swaps a lane map; the copy is compiled for one kind of matrix unit, linked
into the kernel tests in place of the original, and the op's tests must fail. The same tests must
pass without the mutation, which is tried first. A mutation that they pass is a hole in the tests,
or a barrier that nothing needs: both are reported, and the script fails.

Needs a build with tests:
  cmake --preset host && cmake --build --preset host --target reprise_kernels_tests

  tools/mutate_kernels.py --build build/host --list
  tools/mutate_kernels.py --build build/host
  tools/mutate_kernels.py --build build/host --only linear
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Files, the ops whose kernels are compiled with a mutation of them, and the tests that run these.
# The first row that matches a file counts.
FAMILIES = [
    ("kernels/attention/attention_portable_body.h", ("attention",), "*AttentionTest*_f32"),
    ("kernels/attention/attention_naive_body.h", ("attention",), "*AttentionTest.TheNaive*"),
    ("kernels/attention/plan_body.h", ("plan",), "*StepTest*"),
    ("kernels/plan/*.h", ("plan",), "*StepTest*"),
    ("kernels/attention/*.h", ("attention",), "*AttentionTest*_bf16"),
    ("kernels/linear/linear_portable_body.h", ("linear",), "*LinearTest*_f32"),
    ("kernels/linear/*.h", ("linear",), "*Linear*Test*_bf16"),
    ("kernels/sample/*.h", ("sample",), "*Sample*"),
    ("kernels/step/*.h", ("step", "plan"), "*StepTest*"),
    ("kernels/rms_norm/*.h", ("rms_norm",), "*RmsNormTest*"),
    ("kernels/round_rows/*.h", ("round_rows", "rms_norm"), "*RoundRowsTest*:*RmsNormTest*"),
    ("kernels/rope_append/*.h", ("rope_append",), "*RopeAppendTest*"),
    ("kernels/device/gpu/block.h", ("plan", "rms_norm", "round_rows", "sample", "step"), "*"),
    ("kernels/device/last_arriver.h", ("attention", "linear"),
     "*AttentionTest*_bf16:*LinearTest*_bf16"),
]

# What orders accesses, of kernels/device/thread.h, and of bodies that wrap it. Not FenceBulkCopies,
# FenceSystem and StoreToHost: they order what emulation has not got, another way into shared memory
# and a host that watches. Nor BarrierWaitForEither: what is only paced by it needs no order.
WITHOUT_ARGUMENTS = r"(?:\bb\.Sync|\bSyncBlock|\bSyncWarp|\bSyncMerge|\bCopyAsyncWait<[^;]*>" \
                    r"|\bCopyAsyncCommit|\bFenceDevice|\bWaitForPrevious|\bBeginInOrder)\(\)"
ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
WITH_ARGUMENTS = r"\b(?:BarrierInit|BarrierArrive|BarrierArriveTimes|BarrierArriveExpectBytes" \
                 r"|BarrierWait|SyncThreads)" + ARGUMENTS
SYNC = re.compile(rf"(?<!void )(?:{WITHOUT_ARGUMENTS}|{WITH_ARGUMENTS});")
# An arrival at a counter: one that is compared with how many are expected, or of many at once.
ARRIVAL = re.compile(r"(?:REPRISE_DEVICE_NS::)?\b(?:AtomicAdd\(([^(),]+), (1u)\)(?= ==)"
                     r"|AtomicAddAcquireRelease\(([^(),]+), ([^()]+)\))")

# (file, in kernels/device where no folder is named; unit; what it says; what it is made to say):
# lane maps, and orders that no barrier shows.
SWAPS = [
    ("matrix_mma.h", "mma", "return (Lane() >> 2) + 8 * h;", "return (Lane() & 7) + 8 * h;"),
    ("matrix_mma.h", "mma", "return j / 2 * 8 + (Lane() & 3) * 2 + j % 2;",
     "return j / 2 * 8 + (Lane() & 3) + 4 * (j % 2);"),
    ("matrix_mma.h", "mma", "return j / 2 * 4 + 2 * h + j % 2;",
     "return j / 2 * 4 + h + 2 * (j % 2);"),
    ("matrix_mma.h", "mma", "(row + 8 * second, fourth)", "(row + 8 * fourth, second)"),
    ("matrix_mma.h", "mma", "(row + 8 * fourth, second)", "(row + 8 * second, fourth)"),
    ("matrix_mfma.h", "mfma", "return (Lane() >> 4) * 4 + h;", "return (Lane() >> 4) + 4 * h;"),
    ("matrix_mfma.h", "mfma", "return Lane() & 15;", "return Lane() >> 2;"),
    ("matrix_mfma.h", "mfma", "16 * (q >> 2) + 4 * g + j", "16 * (q >> 2) + 4 * j + g"),
    ("matrix_mfma.h", "mfma", "2 * static_cast<uint32_t>(n) + (q >> 3)",
     "2 * static_cast<uint32_t>(n) + (q & 1u)"),
    ("matrix_wmma.h", "wmma", "return 2 * h + (Lane() >> 4);", "return h + 8 * (Lane() >> 4);"),
    ("matrix_wmma.h", "wmma", "return Lane() & 15;", "return Lane() >> 1;"),
    ("matrix_wmma.h", "wmma", "16 * (q & 1) + 2 * pair", "16 * (q & 1) + pair"),
    ("matrix_wmma.h", "wmma", "SwapIf<1>(a.r, (i & 2) != 0);", ""),
    ("matrix_wmma.h", "wmma", "base[flip & 1u]", "base[0]"),
    ("matrix_wmma.h", "wmma", "chunk % kFlips * 16", "chunk % kFlips * 8"),
    ("tests/emulator/matrix_unit.cc", "mma", "2 * (i / 8) + 4 * (k / 8) + k % 2",
     "4 * (i / 8) + 2 * (k / 8) + k % 2"),
]

# Pieces of lines that linear does not run: products of products, and operands that lie transposed.
ATTENTION_ALONE = ("16 * (q >> 2)", "static_cast<uint32_t>(n) + (q >> 3)", "2 * pair", "SwapIf",
                   "base[flip")


# By which units a file's mutations are run, where mma alone would not do.
UNITS = {
    # What all block kernels share must hold for warps of 64 as well.
    "block.h": ("mma", "mfma"),
    # Behind mma's other kernels of packed weights, the op never chooses it.
    "linear_packed_body.h": ("mfma",),
}


@dataclasses.dataclass
class Mutation:
    path: str  # in the tree
    line: int
    text: str  # the whole file, mutated
    what: str
    ops: tuple  # whose sources are compiled with it; of a mutated source, that one
    unit: str
    tests: str

    def name(self):
        return f"{self.path}:{self.line}: {self.what} [{self.unit}]"


def removals():
    seen = set()
    for pattern, ops, tests in FAMILIES:
        files = sorted(set(ROOT.glob(pattern)) - seen)
        if not files:
            sys.exit(f"mutate_kernels.py: no file {pattern}: bring FAMILIES up to date")
        seen.update(files)
        for file in files:
            text = file.read_text()
            for match in SYNC.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                code = text.splitlines()[line - 1]
                if "void Sync() const" in code:
                    continue
                mutated = text[: match.start()] + ";" + text[match.end():]
                for unit in UNITS.get(file.name, ("mma",)):
                    yield Mutation(str(file.relative_to(ROOT)), line, mutated,
                                   f"without {match.group()[:-1]}", ops, unit, tests)
            for match in ARRIVAL.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                place, more = (group for group in match.groups() if group)
                mutated = text[: match.start()] + f"(*({place}) += {more}) - {more}" \
                    + text[match.end():]
                yield Mutation(str(file.relative_to(ROOT)), line, mutated,
                               f"{match.group()} without an atomic", ops, "mma", tests)


def swaps():
    for file, unit, old, new in SWAPS:
        path = ROOT / (file if "/" in file else f"kernels/device/{file}")
        text = path.read_text()
        if text.count(old) != 1:
            sys.exit(f"mutate_kernels.py: {path}: \"{old}\" is there {text.count(old)} times; "
                     "expected once: bring SWAPS up to date")
        line = text.count("\n", 0, text.index(old)) + 1
        for op, tests in (("attention", "*AttentionTest*_bf16"), ("linear", "*Linear*Test*_bf16")):
            if op == "linear" and any(piece in old for piece in ATTENTION_ALONE):
                continue
            name = str(path.relative_to(ROOT))
            yield Mutation(name, line, text.replace(old, new), f"\"{old}\" as \"{new}\"",
                           (name if path.suffix == ".cc" else op,), unit, tests)


class Build:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory).resolve()
        self.program = self.directory / "tests/kernels/reprise_kernels_tests"
        commands = self.directory / "compile_commands.json"
        if not commands.exists():
            sys.exit(f"mutate_kernels.py: {commands} is missing; configure the build first")
        self.commands = json.loads(commands.read_text())
        link = subprocess.run(["ninja", "-C", str(self.directory), "-t", "commands", "-s",
                               "tests/kernels/reprise_kernels_tests"],
                              capture_output=True, text=True,
                              check=True).stdout.strip().splitlines()
        self.link = link[-1].removeprefix(": && ").removesuffix(" && :")

    def compile_command(self, op, unit, overlay, output):
        folder = f"tests/emulated/CMakeFiles/reprise_emulated_{unit}.dir/"
        source = f"/{op}_kernels.cc"
        if op.endswith(".cc"):
            folder, source = f"{pathlib.Path(op).parent}/CMakeFiles/", f"/{op}"
        for entry in self.commands:
            if folder in entry["command"] and entry["file"].endswith(source):
                words = shlex.split(entry["command"])
                if op.endswith(".cc"):
                    words[words.index(entry["file"])] = str(overlay / op)
                words[words.index("-o") + 1] = str(output)
                # -iquote comes before every -I, also for includes from included files. The first
                # flag stands behind the compiler, and a compiler cache before it.
                first = next(at for at, word in enumerate(words) if word.startswith("-"))
                return [*words[:first], "-iquote", str(overlay),
                        *(word for word in words[first:] if word != "-Werror")]
        sys.exit(f"mutate_kernels.py: the build has no {source[1:]} in {folder}; was it "
                 "configured with tests, without ThreadSanitizer?")

    def link_command(self, objects, output):
        words = shlex.split(self.link)
        at = words.index("-o")
        words[at + 1] = str(output)
        return words[: at + 2] + [str(obj) for obj in objects] + words[at + 2:]


def run_tests(program, mutation):
    """The finished process; None when it took too long, as threads do that wait for each other."""
    tests = mutation.tests.replace("*_", f"*emulated_{mutation.unit}_") if "*_" in mutation.tests \
        else f"{mutation.tests}emulated_{mutation.unit}*"
    try:
        run = subprocess.run([str(program), f"--gtest_filter={tests}", "--gtest_fail_fast",
                              "--gtest_brief=1"], cwd=ROOT,
                             capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return None
    if "[==========] 0 tests" in run.stdout:
        sys.exit(f"mutate_kernels.py: no test matches {tests}")
    return run


def check_unmutated(build, mutations):
    """A test that fails anyway notices nothing."""
    for tests, unit in sorted({(m.tests, m.unit) for m in mutations}):
        mutation = next(m for m in mutations if (m.tests, m.unit) == (tests, unit))
        run = run_tests(build.program, mutation)
        if run is None or run.returncode != 0:
            sys.exit(f"mutate_kernels.py: {tests} fails for {unit} without any mutation:\n"
                     f"{run.stdout if run else 'timed out'}")


def caught(build, mutation, scratch):
    """Whether the tests fail; None when the mutant does not compile. With the tests' words."""
    overlay = scratch / "overlay"
    target = overlay / mutation.path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(mutation.text)
    program = scratch / "mutant_tests"
    objects = [scratch / f"{pathlib.Path(op).stem}_mutant.o" for op in mutation.ops]
    try:
        for op, obj in zip(mutation.ops, objects):
            compiled = subprocess.run(build.compile_command(op, mutation.unit, overlay, obj),
                                      cwd=build.directory, capture_output=True, text=True)
            if compiled.returncode != 0:
                return None, compiled.stderr
        subprocess.run(build.link_command(objects, program), cwd=build.directory, check=True)
        run = run_tests(program, mutation)
        return (True, "timed out") if run is None else (run.returncode != 0, run.stdout)
    finally:
        target.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/host",
                        help="a configured build directory with tests (default %(default)s)")
    parser.add_argument("--only", default="", help="a piece of the names of the mutations to run")
    parser.add_argument("--list", action="store_true", help="name the mutations and run none")
    options = parser.parse_args()
    mutations = [m for m in [*removals(), *swaps()] if options.only in m.name()]
    if not mutations:
        sys.exit(f"mutate_kernels.py: no mutation is named like \"{options.only}\"")
    if options.list:
        print("\n".join(m.name() for m in mutations))
        return
    build = Build(options.build)
    check_unmutated(build, mutations)
    survivors = []
    with tempfile.TemporaryDirectory() as scratch:
        for i, mutation in enumerate(mutations, 1):
            result, text = caught(build, mutation, pathlib.Path(scratch))
            if result is None:
                sys.exit(f"mutate_kernels.py: {mutation.name()} does not compile:\n{text}")
            verdict = "caught" if result else "SURVIVED"
            print(f"[{i}/{len(mutations)}] {verdict}: {mutation.name()}", flush=True)
            if not result:
                survivors.append(mutation)
    print(f"{len(mutations) - len(survivors)} of {len(mutations)} mutations are noticed")
    if survivors:
        sys.exit(1)


if __name__ == "__main__":
    main()
