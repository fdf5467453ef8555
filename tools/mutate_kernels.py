#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks kernels on purpose and sees whether the tests under emulation notice.

Each mutation removes one barrier, wait or fence from a copy of a kernel body, counts arrivals
without an atomic, or swaps a lane map; the copy is compiled for one kind of matrix unit, linked
into the tests in place of the original, and the op's tests must fail. The same tests must
pass without the mutation, which is tried first. A mutation that they pass is a hole in the tests,
or a barrier that nothing needs: both are reported, and the script fails.

Needs a build with tests:
  cmake --preset host
  cmake --build --preset host --target reprise_kernels_tests reprise_engine_tests

  tools/mutate_kernels.py --build build/host --list
  tools/mutate_kernels.py --build build/host
  tools/mutate_kernels.py --build build/host --only linear
"""
import argparse
import dataclasses
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Family(typing.NamedTuple):
    files: str
    ops: tuple  # whose kernels are compiled with a mutation of them
    tests: str  # that run these
    program: str = "kernels"  # the tests' folder


# What it computes is compared with the chain of kernels that an engine runs without it.
STEP_KERNEL = Family("kernels/step_kernel/*.h", ("step_kernel",), "*StepKernelTest*_bf16", "engine")

# The first row that matches a file counts.
FAMILIES = [
    Family("kernels/attention/attention_portable_body.h", ("attention",), "*AttentionTest*_f32"),
    Family("kernels/attention/attention_naive_body.h", ("attention",), "*AttentionTest.TheNaive*"),
    Family("kernels/attention/plan_body.h", ("plan",), "*StepTest*"),
    Family("kernels/plan/*.h", ("plan",), "*StepTest*"),
    Family("kernels/attention/*.h", ("attention",), "*AttentionTest*_bf16"),
    Family("kernels/linear/linear_portable_body.h", ("linear",), "*LinearTest*_f32"),
    Family("kernels/linear/*.h", ("linear",), "*Linear*Test*_bf16"),
    Family("kernels/experts/*.h", ("experts",), "*ExpertsTest*_bf16"),
    Family("kernels/mamba/*.h", ("mamba",), "*MambaTest*"),
    Family("kernels/sample/*.h", ("sample",), "*Sample*"),
    Family("kernels/step/*.h", ("step", "plan"), "*StepTest*"),
    STEP_KERNEL,
    Family("kernels/rms_norm/*.h", ("rms_norm",), "*RmsNormTest*"),
    Family("kernels/round_rows/*.h", ("round_rows", "rms_norm"), "*RoundRowsTest*:*RmsNormTest*"),
    Family("kernels/rope_append/*.h", ("rope_append",), "*RopeAppendTest*"),
    Family("kernels/device/gpu/block.h", ("plan", "rms_norm", "round_rows", "sample", "step"), "*"),
    Family("kernels/device/last_arriver.h", ("attention", "linear"),
           "*AttentionTest*_bf16:*LinearTest*_bf16"),
]

# What orders accesses, of kernels/device/thread.h and matrix_group.h, and of bodies that wrap it.
# Not FenceBulkCopies, FenceBulkReads, FenceSystem and StoreToHost: they order what emulation has
# not got, another way into shared memory and a host that watches. Nor BarrierWaitForEither: what is
# only paced by it needs no order.
WITHOUT_ARGUMENTS = r"(?:\bb_?\.Sync|\bblock_?\.Sync|\bSyncBlock|\bSyncWarp|\bSyncWarpgroup" \
                    r"|\bSyncMerge|\bSyncCluster|\bFinishSharedReads|\bCopyAsyncWait<[^;]*>" \
                    r"|\bCopyAsyncCommit|\bFenceDevice|\bWaitForPrevious|\bBeginInOrder)\(\)"
ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
WITH_ARGUMENTS = r"\b(?:BarrierInit|BarrierArrive|BarrierArriveTimes|BarrierArriveExpectBytes" \
                 r"|BarrierArriveAfterCopies|BarrierArriveAtPeer|BarrierWait|BarrierWaitForPeers" \
                 r"|SyncThreads|WaitAtLeast|WaitAtLeastInBlock|AtomicAddRelease" \
                 r"|AtomicMaxRelease)" + ARGUMENTS
SYNC = re.compile(rf"(?<!void )(?:{WITHOUT_ARGUMENTS}|{WITH_ARGUMENTS});")
# An arrival at a counter: one that is compared with how many are expected, or of many at once.
ARRIVAL = re.compile(r"(?:REPRISE_DEVICE_NS::)?\b(?:AtomicAdd\(([^(),]+), (1u)\)(?= ==)"
                     r"|AtomicAddAcquireRelease\(([^(),]+), ([^()]+)\))")

# The ops that a lane map, or an order that no barrier shows, is mutated for, and their tests.
SWAP_TESTS = {"attention": "*AttentionTest*_bf16", "linear": "*Linear*Test*_bf16",
              "experts": "*ExpertsTest*_bf16"}
BOTH = ("attention", "linear")
ATTENTION = ("attention",)  # products of products, and operands that lie transposed
LINEAR = ("linear",)  # weights of 4 bits
EXPERTS = ("experts",)  # the same on mma, where linear has other kernels for them


class Swap(typing.NamedTuple):
    file: str  # in kernels/device where no folder is named
    unit: str
    old: str  # what it says, in one place alone
    new: str  # what it is made to say
    ops: tuple = BOTH


SWAPS = [
    Swap("matrix_mma.h", "mma", "int MatrixRow(int h) { return (Lane() >> 2) + 8 * h; }",
         "int MatrixRow(int h) { return (Lane() & 7) + 8 * h; }"),
    Swap("matrix_mma.h", "mma", "return j / 2 * 8 + (Lane() & 3) * 2 + j % 2;",
         "return j / 2 * 8 + (Lane() & 3) + 4 * (j % 2);"),
    Swap("matrix_mma.h", "mma", "return j / 2 * 4 + 2 * h + j % 2;",
         "return j / 2 * 4 + h + 2 * (j % 2);"),
    Swap("matrix_mma.h", "mma", "(row + 8 * second, fourth)", "(row + 8 * fourth, second)"),
    Swap("matrix_mma.h", "mma", "(row + 8 * fourth, second)", "(row + 8 * second, fourth)"),
    Swap("matrix_mma.h", "mma", "int FourBitRow(int i) { return (Lane() >> 2) + 8 * i; }",
         "int FourBitRow(int i) { return (Lane() & 7) + 8 * i; }", EXPERTS),
    Swap("matrix_mfma.h", "mfma", "return (Lane() >> 4) * 4 + h;", "return (Lane() >> 4) + 4 * h;"),
    Swap("matrix_mfma.h", "mfma", "int MatrixColumn(int) { return Lane() & 15; }",
         "int MatrixColumn(int) { return Lane() >> 2; }"),
    Swap("matrix_mfma.h", "mfma", "16 * (q >> 2) + 4 * g + j", "16 * (q >> 2) + 4 * j + g",
         ATTENTION),
    Swap("matrix_mfma.h", "mfma", "2 * static_cast<uint32_t>(n) + (q >> 3)",
         "2 * static_cast<uint32_t>(n) + (q & 1u)", ATTENTION),
    Swap("matrix_mfma.h", "mfma", "int FourBitRow(int) { return Lane() & 15; }",
         "int FourBitRow(int) { return Lane() >> 2; }", LINEAR),
    Swap("matrix_wmma.h", "wmma", "return 2 * h + (Lane() >> 4);", "return h + 8 * (Lane() >> 4);"),
    Swap("matrix_wmma.h", "wmma", "int MatrixColumn(int) { return Lane() & 15; }",
         "int MatrixColumn(int) { return Lane() >> 1; }"),
    Swap("matrix_wmma.h", "wmma", "16 * (q & 1) + 2 * pair", "16 * (q & 1) + pair", ATTENTION),
    Swap("matrix_wmma.h", "wmma", "SwapIf<1>(a.r, (i & 2) != 0);", "", ATTENTION),
    Swap("matrix_wmma.h", "wmma", "base[flip & 1u]", "base[0]", ATTENTION),
    Swap("matrix_wmma.h", "wmma", "chunk % kFlips * 16", "chunk % kFlips * 8"),
    Swap("matrix_wmma.h", "wmma", "int FourBitRow(int) { return Lane() & 15; }",
         "int FourBitRow(int) { return Lane() >> 1; }", LINEAR),
    Swap("tests/emulator/matrix_unit.cc", "mma", "WordOf(all, row + of_lane, 1 + 2 * half)",
         "WordOf(all, row + of_lane, 2 + half)"),
]

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
    program: str  # of the tests

    def name(self):
        return f"{self.path}:{self.line}: {self.what} [{self.unit}]"


def step_kernel_places(text):
    """Ranges of attention's text that the step kernel alone runs, whose warps go on behind it."""
    for match in re.finditer(r"if constexpr \(Order::kContinues\) {|void PassEnd\(.*{", text):
        depth, end = 1, match.end()
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield range(match.end(), end)


def removals_from(file, family):
    text = file.read_text()
    name = str(file.relative_to(ROOT))
    of_step_kernel = list(step_kernel_places(text))

    def mutation(match, instead, what, unit):
        run_by = STEP_KERNEL if any(match.start() in part for part in of_step_kernel) else family
        return Mutation(name, text.count("\n", 0, match.start()) + 1,
                        text[: match.start()] + instead + text[match.end():],
                        " ".join(what.split()), run_by.ops, unit, run_by.tests, run_by.program)

    for match in SYNC.finditer(text):
        line = text[text.rindex("\n", 0, match.start()):match.start()]
        if "void Sync() const" in line:
            continue
        for unit in UNITS.get(file.name, ("mma",)):
            yield mutation(match, ";", f"without {match.group()[:-1]}", unit)
    for match in ARRIVAL.finditer(text):
        place, more = (group for group in match.groups() if group)
        yield mutation(match, f"(*({place}) += {more}) - {more}",
                       f"{match.group()} without an atomic", "mma")


def removals():
    seen = set()
    for family in FAMILIES:
        files = sorted(set(ROOT.glob(family.files)) - seen)
        if not files:
            sys.exit(f"mutate_kernels.py: no file {family.files}: bring FAMILIES up to date")
        seen.update(files)
        for file in files:
            yield from removals_from(file, family)


def swaps():
    wrong = []
    for swap in SWAPS:
        name = swap.file if "/" in swap.file else f"kernels/device/{swap.file}"
        text = (ROOT / name).read_text()
        if text.count(swap.old) != 1:
            wrong.append(f"{name}: \"{swap.old}\" is there {text.count(swap.old)} times; "
                         "expected once: bring SWAPS up to date")
            continue
        line = text.count("\n", 0, text.index(swap.old)) + 1
        for op in swap.ops:
            yield Mutation(name, line, text.replace(swap.old, swap.new),
                           f"\"{swap.old}\" as \"{swap.new}\"",
                           (name if name.endswith(".cc") else op,), swap.unit, SWAP_TESTS[op],
                           "kernels")
    if wrong:
        sys.exit("\n".join(f"mutate_kernels.py: {fault}" for fault in wrong))


class Build:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory).resolve()
        commands = self.directory / "compile_commands.json"
        if not commands.exists():
            sys.exit(f"mutate_kernels.py: {commands} is missing; configure the build first")
        self.commands = json.loads(commands.read_text())
        self.links = {}  # by program

    def program(self, tests):
        return self.directory / f"tests/{tests}/reprise_{tests}_tests"

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
                 "configured with tests, without ThreadSanitizer and REPRISE_UNITY?")

    def link_command(self, tests, objects, output):
        if tests not in self.links:
            printed = subprocess.run(["ninja", "-C", str(self.directory), "-t", "commands", "-s",
                                      str(self.program(tests).relative_to(self.directory))],
                                     capture_output=True, text=True, check=True).stdout
            last = printed.strip().splitlines()[-1]
            self.links[tests] = last.removeprefix(": && ").removesuffix(" && :")
        words = shlex.split(self.links[tests])
        at = words.index("-o")
        words[at + 1] = str(output)
        return words[: at + 2] + [str(obj) for obj in objects] + words[at + 2:]


def test_filter(mutation):
    """Of the mutation's tests, those that run under emulation of its unit."""
    unit = f"emulated_{mutation.unit}"
    return ":".join(tests.replace("*_", f"*{unit}_") if "*_" in tests else f"{tests}{unit}*"
                    for tests in mutation.tests.split(":"))


def run_tests(program, mutation):
    """The finished process; None when it took too long, as threads do that wait for each other."""
    tests = test_filter(mutation)
    try:
        run = subprocess.run([str(program), f"--gtest_filter={tests}", "--gtest_fail_fast",
                              "--gtest_brief=1"], cwd=ROOT,
                             capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return None
    if "[==========] 0 tests" in run.stdout:
        sys.exit(f"mutate_kernels.py: no test of {program.name} matches {tests}")
    return run


def check_unmutated(build, mutations):
    """A test that fails anyway notices nothing."""
    of_filter = {(m.program, test_filter(m)): m for m in mutations}
    for (tests, pattern), mutation in sorted(of_filter.items(), key=lambda item: item[0]):
        program = build.program(tests)
        if not program.exists():
            sys.exit(f"mutate_kernels.py: {program} is missing; build its target first")
        run = run_tests(program, mutation)
        if run is None or run.returncode != 0:
            sys.exit(f"mutate_kernels.py: {pattern} fails without any mutation:\n"
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
        subprocess.run(build.link_command(mutation.program, objects, program),
                       cwd=build.directory, check=True)
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
