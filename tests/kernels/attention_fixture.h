// SPDX-License-Identifier: Apache-2.0
// AttentionTest: launches of attention over rows of a case, beside the oracle, on every device.
#ifndef REPRISE_TESTS_KERNELS_ATTENTION_FIXTURE_H_
#define REPRISE_TESTS_KERNELS_ATTENTION_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/kernel_set.h"
#include "runtime/dtype.h"
#include "tests/kernels/attention_batch.h"
#include "tests/testing/cases/attention_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"

namespace reprise::testing {

const char* NameOf(kernels::AttentionCandidate c);

class AttentionTest : public KernelTest {
 protected:
  // Both phases of a step over `rows`. Result: one output per row, as bytes.
  std::vector<std::vector<std::byte>> Run(const kernels::AttentionCase& c,
                                          const std::vector<RowData>& rows, uint64_t seed,
                                          kernels::AttentionCandidate candidate);

  kernels::KvLayout LayoutOf(const kernels::AttentionCase& c) const {
    return {.num_kv_heads = c.num_kv_heads,
            .head_dim = c.head_dim,
            .block_size = c.block_size,
            .dtype = kv_dtype()};
  }

  // Those that engines run and that may differ: an emulated GPU has the portable kernel alone for
  // f32.
  std::vector<kernels::AttentionCandidate> Candidates() const;

  // Whether the case with this index in a list runs with the candidate. Emulated GPUs are slow: of
  // what differs between their units in little, which is all but bf16 on matrix units, and under
  // AddressSanitizer of that too, each of the three units takes a third of the list.
  bool IsSampled(size_t index, kernels::AttentionCandidate candidate) const;

  // From here on splits are merged in a launch of their own.
  void MergeApart() { merges_apart_ = true; }

  // Of the combinations with KV of 8 bits those that differ from others in nothing but the type of
  // queries: the host device and emulated GPUs are slow.
  bool IsLesserFp8() const {
    if (kv_dtype() == dtype() ||
        (!is_emulated() && GetParam().device != runtime::DeviceKind::kHost))
      return false;
    const bool bf16 = dtype() == runtime::DType::kBf16 && kv_dtype() == runtime::DType::kE4m3;
    const bool f32 = dtype() == runtime::DType::kF32 && kv_dtype() == runtime::DType::kE5m2;
    return !bf16 && (is_emulated() || !f32);
  }
  static constexpr char kLesserFp8[] = "other combinations cover what differs";

  // From here on launches plan for a device of so many multiprocessors.
  void LimitMultiprocessors(int count);
  // From here on launches plan for a block with so much shared memory.
  void LimitSharedBytes(size_t bytes);
  const kernels::KernelSet& planned_kernels() const {
    return limited_ != nullptr ? *limited_ : kernels();
  }

  // Tensor cores take probabilities in the storage format, and beside V of 8 bits in f16.
  runtime::DType ProbabilityFormat(kernels::AttentionCandidate candidate) const;

  void ExpectOracle(const kernels::AttentionCase& c, const std::vector<RowData>& rows,
                    kernels::AttentionCandidate candidate);

  // Of the sampled ones of a list.
  void ExpectOracles(std::span<const kernels::AttentionCase> cases);

  size_t num_tiles_ = 0;  // of all launches

 private:
  kernels::AttentionArgs MakeArgs(GuardedMemory& memory, const kernels::AttentionCase& c,
                                  const AttentionBatch& batch);

  // The decode rows as a deal, of leaves so short that rows of the cases have several.
  void LaunchDealt(GuardedMemory& memory, kernels::AttentionArgs args,
                   const kernels::AttentionCase& c, uint32_t num_shares, AttentionBatch& batch);

  void Launch(GuardedMemory& memory, kernels::AttentionArgs args,
              std::vector<kernels::AttentionWorkItem> items, kernels::AttentionPhase phase,
              kernels::AttentionCandidate candidate);

  std::unique_ptr<kernels::KernelSet> limited_;
  bool merges_apart_ = false;
  bool reads_ahead_ = false;  // of the last launch of a deal: by turns
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_ATTENTION_FIXTURE_H_
