#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every compiled kernel takes of every GPU target: a table for docs/benchmarks, and a check
that tests run.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import device_code  # noqa: E402

EXAMPLES = """examples:
  tools/kernel_resources.py --build build/cuda
      writes docs/benchmarks/kernel_resources.md and .json
  tools/kernel_resources.py --build build/cuda --check
      exits with 1 and one line per finding where there is any

The build folder needs its device code and the program reprise_kernel_shapes (both are part of
`cmake --build --preset cuda` and, for AMD targets alone, of `--preset hip`). AMD code is
disassembled with llvm-objdump-19.
"""

# ---- the rules that --check enforces ----

# Which kernels a target must have, which it must not, and how many there may be is said by the
# catalogue (kernels/catalog.h), and printed by reprise_kernel_shapes.

# Code of a kernel whose instance does not fit the target, at most, as below: it ends at once. The
# compilers' alignment is no part of a kernel's size, but NVIDIA's own padding is.
EMPTY_CODE_BYTES = (("sm_.*", ".*", 256), ("gfx.*", ".*", 64))

# What may spill, as (target, kernel, most); the first pattern that matches both counts, and
# everything else may not spill at all. Scratch: bytes per thread in device memory.
SCRATCH_ALLOWANCE = (
    # The accumulators of head size 256 alone fill half of the 255 registers.
    ("sm_.*", "reprise_attention_prefill_matrix_.*_256", 24),
    # Registers that the caller of a division routine keeps on its stack.
    ("sm_90a", "reprise_embedding_.*", 32),
    ("sm_.*", "reprise_rope_append_.*_fp8", 48),
    ("sm_.*", "reprise_(plan|attention_portable_.*)", 8),
    # Out of scalar registers: the scales of KV of 8 bits are two more pointers.
    ("gfx9.*", "reprise_attention_prefill_matrix_.*_fp8_.*", 36),
)
# Scalar registers kept in lanes of vector registers, no memory involved. CDNA has 102 of them.
SPILLED_SCALARS_ALLOWANCE = (
    ("gfx.*", "reprise_linear_matrix_.*", 64),
    # Two bodies in one kernel, one for each format of 8 bits.
    ("gfx.*", "reprise_attention_portable_.*_fp8", 165),
    ("gfx.*", "reprise_attention_decode_matrix_.*", 28),
    ("gfx9.*", "reprise_attention_prefill_matrix_.*", 6),
    # Where an expert's matrix and scales begin, beside all that a linear layer needs.
    ("gfx9.*", "reprise_experts_(portable|packed)_(fp8|int4|mxfp4)_.*", 20),
    # Three bodies in one kernel, for states of other sizes.
    ("gfx.*", "reprise_mamba_scan_.*", 84),
    ("gfx.*", "reprise_(plan|sample_final|attention_(portable|naive)_.*)", 128),
)


def allowance(table, target, name):
    for target_pattern, name_pattern, most in table:
        if re.fullmatch(target_pattern, target) and re.fullmatch(name_pattern, name):
            return most
    return 0


def matrix_unit(target):
    """Row of kernels/device/traits.h; the key of reprise_kernel_shapes' output."""
    if target.startswith("sm_"):
        capability = int(target[3:].rstrip("af"))
        if capability < 90:
            return "mma_without_bulk_copy"
        return "mma" if capability == 90 else "mma_without_group_products"
    return "mfma" if target.startswith("gfx9") else "wmma"


def findings(targets, shapes, wanted=()):
    """What is wrong, one line each; an empty list when all is well. wanted: targets that must be
    there.
    """
    found = [
        f"{target}: no kernel is compiled for it" for target in wanted if target not in targets]
    for target, kernels in sorted(targets.items()):
        unit = shapes["units"][matrix_unit(target)]
        expected = unit["dynamic_shared_bytes"]
        for name in expected:
            if name not in kernels:
                found.append(f"{target}: {name} of the catalogue is not compiled")
        present = present_kernels(kernels, unit)
        for name in present:
            if name not in expected:
                found.append(
                    f"{target}: {name} is compiled but not expected there by the catalogue")
        if len(present) > unit["budget"]:
            found.append(
                f"{target}: {len(present)} compiled kernels; allowed: {unit['budget']} "
                "(InstanceBudget in kernels/catalog.h)")
        for name, kernel in kernels.items():
            found += _kernel_findings(kernel) if name in present else _empty_findings(kernel)
    return found


def present_kernels(kernels, unit):
    """Those that are more than the empty kernel of an instance that does not fit the unit."""
    return {name: kernel for name, kernel in kernels.items() if name not in unit["empty"]}


def _empty_findings(kernel):
    if (kernel.code_bytes > allowance(EMPTY_CODE_BYTES, kernel.target, kernel.name)
            or kernel.matrix_instructions
            or kernel.static_shared_bytes or kernel.scratch_bytes):
        yield (
            f"{kernel.target}: {kernel.name} does not fit the target and must be empty; it has "
            f"{kernel.code_bytes} bytes of code, "
            f"{kernel.static_shared_bytes} of shared memory and {kernel.scratch_bytes} of scratch "
            f"memory"
        )


def _kernel_findings(kernel):
    where = f"{kernel.target}: {kernel.name}"
    if device_code.is_matrix_kernel(kernel.name) and kernel.matrix_instructions == 0:
        yield f"{where} has no matrix instruction of its dtype"
    most = allowance(SCRATCH_ALLOWANCE, kernel.target, kernel.name)
    if kernel.scratch_bytes > most:
        yield (f"{where} takes {kernel.scratch_bytes} bytes of scratch memory per thread; "
               f"allowed: {most}")
    most = allowance(SPILLED_SCALARS_ALLOWANCE, kernel.target, kernel.name)
    if kernel.spilled_scalars > most:
        yield f"{where} spills {kernel.spilled_scalars} scalar registers; allowed: {most}"


# ---- occupancy ----


@dataclasses.dataclass(frozen=True)
class Nvidia:
    """One multiprocessor, from NVIDIA's CUDA C++ Programming Guide (technical specifications per
    compute capability).
    """

    shared_bytes: int
    max_block_shared_bytes: int
    warps: int = 64
    blocks: int = 32
    registers: int = 65536
    register_unit: int = 256  # of a warp
    shared_unit: int = 128
    reserved_bytes: int = 1024  # of every block

    lanes = 32

    def limits(self, kernel, dynamic):
        """Blocks at a time by each limit."""
        warps = kernel.threads // self.lanes
        per_warp = _round_up(kernel.registers * self.lanes, self.register_unit)
        # A multiprocessor is four parts, each with a quarter of the registers.
        by_registers = self.registers // 4 // per_warp * 4 // warps
        shared = _round_up(kernel.static_shared_bytes + dynamic + self.reserved_bytes,
                           self.shared_unit)
        fits = kernel.static_shared_bytes + dynamic <= self.max_block_shared_bytes
        return {
            "threads": min(self.warps // warps, self.blocks),
            "shared memory": self.shared_bytes // shared if fits else 0,
            "registers": by_registers,
        }


@dataclasses.dataclass(frozen=True)
class Amd:
    """One CU of CDNA, one WGP (two CUs) of RDNA: four SIMDs and the LDS that they share.

    From AMD's ISA guides of CDNA 2, CDNA 3 and RDNA 3 and LLVM's User Guide for the AMDGPU back
    end.
    """

    lanes: int
    warps: int  # of a SIMD
    registers: int  # of a SIMD, per lane
    register_unit: int
    shared_bytes: int
    shared_unit: int
    blocks: int
    scalar_limit: bool  # CDNA: 800 scalar registers of a SIMD are shared out to its warps
    max_block_shared_bytes: int = 65536

    def limits(self, kernel, dynamic):
        warps = kernel.threads // self.lanes
        per_simd = self.registers // max(self.register_unit,
                                         _round_up(kernel.registers, self.register_unit))
        if self.scalar_limit:
            per_simd = min(per_simd, 800 // max(16, _round_up(kernel.scalar_registers, 16)))
        shared = _round_up(kernel.static_shared_bytes + dynamic, self.shared_unit)
        by_shared = self.shared_bytes // shared if shared else self.blocks
        return {
            "threads": min(self.warps * 4 // warps, self.blocks),
            "shared memory": by_shared if shared <= self.max_block_shared_bytes else 0,
            "registers": per_simd * 4 // warps,
        }


DEVICES = {
    "sm_80": Nvidia(shared_bytes=164 * 1024, max_block_shared_bytes=163 * 1024),
    "sm_90a": Nvidia(shared_bytes=228 * 1024, max_block_shared_bytes=227 * 1024),
    "gfx90a": Amd(64, 8, 512, 8, 65536, 512, 16, True),
    "gfx942": Amd(64, 8, 512, 8, 65536, 512, 16, True),
    "gfx1100": Amd(32, 16, 1536, 24, 131072, 1024, 32, False),
}
UNIT_NAME = {"sm_80": "multiprocessor", "sm_90a": "multiprocessor", "gfx90a": "CU", "gfx942": "CU",
             "gfx1100": "WGP (two CUs)"}


def _round_up(value, unit):
    return (value + unit - 1) // unit * unit


def occupancy(kernel, dynamic):
    """(blocks at a time, warps of them, share of the device's warps, what limits)."""
    device = DEVICES[kernel.target]
    limits = device.limits(kernel, dynamic)
    blocks = min(limits.values())
    limiter = next(name for name, most in limits.items() if most == blocks)
    warps = blocks * kernel.threads // device.lanes
    most = device.warps if isinstance(device, Nvidia) else device.warps * 4
    return blocks, warps, warps / most, limiter


# ---- the table ----

COLUMNS = (
    "kernel", "threads", "registers", "scalar registers", "static shared", "dynamic shared",
    "scratch", "spilled scalars",
    "blocks (warps)", "occupancy", "limit", "matrix instructions", "code bytes",
)  # fmt: skip


def rows_of(targets, shapes):
    """One dictionary per kernel and target, in the order of the catalogue."""
    rows = []
    for target in sorted(targets, key=list(DEVICES).index):
        dynamic = shapes["units"][matrix_unit(target)]["dynamic_shared_bytes"]
        for name in dynamic:
            kernel = targets[target].get(name)
            if kernel is None:
                continue
            blocks, warps, share, limiter = occupancy(kernel, dynamic[name])
            rows.append(
                dataclasses.asdict(kernel)
                | {"dynamic_shared_bytes": dynamic[name], "blocks": blocks, "warps": warps}
                | {"occupancy": round(share, 4), "limited_by": limiter}
            )
    return rows


def _cells(row):
    registers = str(row["registers"])
    if row["accumulators"]:
        registers += f" ({row['accumulators']} acc)"
    amd = row["target"].startswith("gfx")
    fits = row["blocks"] > 0
    return (
        row["name"].removeprefix("reprise_"), row["threads"], registers,
        row["scalar_registers"] if amd else "-",
        row["static_shared_bytes"], row["dynamic_shared_bytes"], row["scratch_bytes"],
        row["spilled_scalars"] if amd else "-",
        f"{row['blocks']} ({row['warps']})" if fits else "does not fit", f"{row['occupancy']:.0%}",
        row["limited_by"],
        row["matrix_instructions"] if device_code.is_matrix_kernel(row["name"]) else "-",
        row["code_bytes"],
    )  # fmt: skip


def markdown(rows, shapes):
    lines = [
        "# What the kernels take of each target",
        "",
        "Written by `tools/kernel_resources.py --build build/cuda`; do not edit. The same figures",
        "are in kernel_resources.json.",
        "",
        "- All is read from the compiled code, without any GPU: registers, shared memory and",
        "  scratch as the code states them, instructions as disassembled. Nothing here is a",
        "  measurement of speed.",
        f"- Dynamic shared memory is that of a launch for {shapes['launch']},",
        "  from the functions that launches use (`reprise_kernel_shapes`); the portable",
        "  attention's is its prefill, and that of `mamba_scan` a decode step's, with 128 numbers",
        "  of state: launches with prompts may ask for more, so that fewer blocks fit.",
        "- Registers are 32-bit, per thread; on CDNA they are both kinds together, with",
        "  accumulation registers in brackets. Scratch is bytes per thread in device memory.",
        "  Spilled scalars are kept in lanes of vector registers and cost no memory.",
        "- Occupancy is how many blocks run at a time on one multiprocessor of NVIDIA, one CU of",
        "  CDNA or one WGP (two CUs) of RDNA: the least of what registers, shared memory and",
        "  threads allow. Limits are from NVIDIA, CUDA C++ Programming Guide, technical",
        "  specifications per compute capability; AMD, ISA guides of CDNA 2, CDNA 3 and RDNA 3;",
        "  LLVM, User Guide for AMDGPU Backend.",
        "",
        "| target | kernels | budget | with scratch | matrix kernels | of them with matrix "
        "instructions | code, KB |",
        "|---|---|---|---|---|---|---|",
    ]
    names = list(dict.fromkeys(row["target"] for row in rows))
    for target in names:
        of = [row for row in rows if row["target"] == target]
        matrix = [row for row in of if device_code.is_matrix_kernel(row["name"])]
        lines.append(
            f"| {target} | {len(of)} | {shapes['units'][matrix_unit(target)]['budget']} | "
            f"{sum(row['scratch_bytes'] > 0 for row in of)} | {len(matrix)} "
            f"| {sum(row['matrix_instructions'] > 0 for row in matrix)} | "
            f"{sum(row['code_bytes'] for row in of) // 1024} |"
        )
    for target in names:
        lines += ["", f"## {target}, per {UNIT_NAME[target]}", "", f"| {' | '.join(COLUMNS)} |",
                  "|---" * len(COLUMNS) + "|"]
        lines += [
            f"| {' | '.join(map(str, _cells(row)))} |" for row in rows if row["target"] == target]
    return "\n".join(lines) + "\n"


def document(rows, shapes):
    """JSON, one line per kernel."""
    head = {"command": "tools/kernel_resources.py --build build/cuda", "launch": shapes["launch"]}
    head["budget"] = {unit: shapes["units"][unit]["budget"] for unit in shapes["units"]}
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    return json.dumps(head, indent=1)[:-2] + f',\n "kernels": [\n  {lines}\n ]\n}}\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, metavar="DIR",
                        help="a build folder with device code, such as build/cuda")
    parser.add_argument("--check", action="store_true",
                        help="write nothing; report what breaks a rule")
    parser.add_argument("--targets", default="", metavar="LIST",
                        help="with --check: targets that must be there, such as sm_80,gfx942")
    parser.add_argument("--shapes", metavar="PROGRAM",
                        help="reprise_kernel_shapes "
                        "(default: DIR/tests/kernels/reprise_kernel_shapes)")
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--out", metavar="DIR", default=root / "docs" / "benchmarks",
                        help="where the table goes (default: docs/benchmarks)")
    args = parser.parse_args()
    default_program = pathlib.Path(args.build) / "tests" / "kernels" / "reprise_kernel_shapes"
    program = args.shapes or default_program
    if not pathlib.Path(program).exists():
        print(f"kernel_resources.py: {program} is missing; build reprise_kernel_shapes, or name it "
              "with --shapes", file=sys.stderr)
        return 2
    try:
        shapes = json.loads(subprocess.run([program], capture_output=True, check=True).stdout)
        targets = device_code.read_build(args.build)
    except (OSError, subprocess.CalledProcessError, device_code.CodeError) as error:
        print(f"kernel_resources.py: {error}", file=sys.stderr)
        return 2
    if args.check:
        found = findings(targets, shapes, [target for target in args.targets.split(",") if target])
        for line in found:
            print(line)
        counts = ", ".join(
            f"{target} {len(present_kernels(kernels, shapes['units'][matrix_unit(target)]))}"
            for target, kernels in sorted(targets.items())
        )
        print(f"{len(found)} findings in compiled kernels: {counts}")
        return 1 if found else 0
    missing = sorted(set(DEVICES) - set(targets))
    if missing:
        print(f"kernel_resources.py: {args.build} has no code for {', '.join(missing)}; the table "
              "wants all targets", file=sys.stderr)
        return 2
    rows = rows_of(targets, shapes)
    out = pathlib.Path(args.out)
    (out / "kernel_resources.md").write_text(markdown(rows, shapes))
    (out / "kernel_resources.json").write_text(document(rows, shapes))
    print(f"{out / 'kernel_resources.md'}: {len(rows)} kernels on {len(targets)} targets")
    return 0


if __name__ == "__main__":
    sys.exit(main())
