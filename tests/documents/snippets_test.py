#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every C++ snippet of the documents inside the surroundings that its text assumes.

usage: snippets_test.py --source REPOSITORY --build BUILD --cxx COMPILER

A snippet that has no surroundings here is an error. README's snippet is a whole program, which
tests/consumer_test.cmake builds and runs; those of docs/embedding.md are tried by programs_test.py.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import markdown

NAMESPACE = "reprise::kernels::REPRISE_DEVICE_NS"
EMULATED = [
    "-DREPRISE_EMULATE_MMA",
    "-DREPRISE_TARGET_HEADER=\"tests/emulator/device/platform.h\"",
]

# By document, in order: compiler flags, and what stands around the snippet (@@).
SURROUNDINGS = {
    "docs/adding_an_op.md": [
        (
            [],
            """
#include "kernels/device/block.h"
namespace reprise::kernels {
struct ScaleArgs {
  const void* x;
  void* y;
  const uint32_t* num_tokens;
  float scale;
  int width;
};
}
namespace reprise::kernels::REPRISE_DEVICE_NS {
@@
template void ScaleBody<Bf16>(Block&, const ScaleArgs&);
}
""",
        ),
        (
            [],
            """
#include "kernels/kernel_instance.h"
#include "kernels/device/define_instances.h"
#include "kernels/device/block.h"
@@
namespace reprise::kernels {
struct ScaleArgs {
  int width;
};
}
namespace reprise::kernels::REPRISE_DEVICE_NS {
template <typename T>
REPRISE_FN void ScaleBody(Block&, const ScaleArgs&) {}
REPRISE_SCALE_INSTANCES(REPRISE_DEFINE_INSTANCE)
}
""",
        ),
    ],
    "docs/device_layer.md": [
        (
            [],
            """
#include "kernels/device/block.h"
namespace reprise::kernels {
struct NormalizeArgs {
  const void* x;
  void* y;
  const uint32_t* num_rows;
  int width;
};
}
namespace reprise::kernels::REPRISE_DEVICE_NS {
@@
}
""",
        ),
        (
            [],
            """
#include "kernels/device/block.h"
namespace reprise::kernels::REPRISE_DEVICE_NS {
template <typename T>
void Body(Block& b, const T* in, T* out, int n) {
@@
}
template void Body<Bf16>(Block&, const Bf16*, Bf16*, int);
}
""",
        ),
        (
            EMULATED,
            """
#include "kernels/device/thread.h"
namespace reprise::kernels {
struct RowSumsArgs {
  const float* x;
  float* sums;
  int width;
};
}
namespace reprise::kernels::REPRISE_DEVICE_NS {
@@
}
""",
        ),
        (
            EMULATED,
            """
#include "kernels/device/thread.h"
namespace reprise::kernels::REPRISE_DEVICE_NS {
constexpr int kStages = 4;
struct Accumulators {};
void MultiplyStage(int, Accumulators&);
template <typename LoadNext, typename Done>
void Run(uint32_t begin, uint32_t end, uint32_t tile, LoadNext load_next, Done done) {
  int stage = 0;
  Accumulators acc;
@@
}
void UseRun() {
  Run(0, 1, 0, [] {}, [](uint32_t, uint32_t, Accumulators&) {});
}
}
""",
        ),
        (
            [],
            """
#include "kernels/device/block.h"
#include "kernels/device/fp8.h"
namespace reprise::kernels::REPRISE_DEVICE_NS {
void Convert(const E4m3* cache, E5m2* out, int i) {
@@
}
}
""",
        ),
        (
            EMULATED,
            """
#include "kernels/device/matrix.h"
namespace reprise::kernels::REPRISE_DEVICE_NS {
template <typename T, int kChunks, int kColumns>
void Scores(uint32_t queries, uint32_t keys, float* scores) {
@@
}
template void Scores<Bf16, 8, 64>(uint32_t, uint32_t, float*);
}
""",
        ),
    ],
    "docs/devices.md": [
        (
            [],
            """
#include "runtime/device.h"
namespace reprise::runtime {
void Axpy(const HostBlockContext&, const void*);
void Load(std::unique_ptr<Device>& device, std::span<const std::span<const std::byte>> my_fatbins) {
@@
}
}
""",
        ),
    ],
}

# Whole programs.
ELSEWHERE = {"README.md": 1, "docs/embedding.md": 2}


def is_cpp(block: markdown.Block) -> bool:
    return block.language == "cpp" or (block.language == "indented" and "auto " in block.text)


def compile_one(arguments, block, flags, around) -> str:
    """What the compiler says against it."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "snippet.cc"
        file.write_text(around.replace("@@", block.text))
        command = [arguments.cxx, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
        # A snippet shows names that it does not use.
        command += ["-Wno-unused", "-DREPRISE_WITH_CUDA=0", '-DREPRISE_VERSION="0"', *flags]
        command += ["-I", str(arguments.source), "-I", str(arguments.build / "include"), str(file)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cxx", required=True)
    arguments = parser.parse_args()
    failures = []
    num_compiled = 0
    for document in markdown.documents(arguments.source):
        name = str(document.relative_to(arguments.source))
        snippets = [b for b in markdown.blocks(arguments.source, document) if is_cpp(b)]
        if len(snippets) == ELSEWHERE.get(name):
            continue
        known = SURROUNDINGS.get(name, [])
        if len(snippets) != len(known):
            failures.append(f"{name}: {len(snippets)} snippets, surroundings for {len(known)}")
            continue
        for block, (flags, around) in zip(snippets, known):
            said = compile_one(arguments, block, flags, around)
            num_compiled += 1
            if said:
                failures.append(f"{block.place}:\n{said}")
    print("\n".join(failures) or f"{num_compiled} snippets compile")
    return 1 if failures or num_compiled == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
