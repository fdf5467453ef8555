// SPDX-License-Identifier: Apache-2.0
// The warps of a block of the step kernel that work on rows, stage after stage: norms, rope and KV
// append, attention. A row's norm and rope are done by one block; attention by all, after the
// plan's deal, as in decode_bulk_body.h. What is read of earlier stages is waited for by the stage;
// what is older, KV of earlier steps above all, is asked for before.
#ifndef REPRISE_KERNELS_STEP_KERNEL_STEP_ROWS_H_
#define REPRISE_KERNELS_STEP_KERNEL_STEP_ROWS_H_

#include "kernels/attention/decode_bulk_body.h"
#include "kernels/rms_norm/rms_norm_body.h"
#include "kernels/rope_append/rope_append_body.h"
#include "kernels/step_kernel/step_flags.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// BulkKernelOrder's place in the step kernel.
class StepShareOrder {
 public:
  static constexpr bool kContinues = true;

  REPRISE_FN StepShareOrder(const StepFlags& flags, uint32_t stage)
      : flags_(flags), stage_(stage) {}
  // Those who compute get everything from the warp that requests.
  REPRISE_FN void Begin() const {}
  REPRISE_FN void Wait() const {
    flags_.WaitBefore(stage_);
    FenceBulkReads();
  }
  REPRISE_FN void Finish() const { flags_.AddDone(stage_); }

 private:
  const StepFlags& flags_;
  const uint32_t stage_;
};

// kStepRowWarps warps as a block in block style, as far as rope needs one.
class StepRowBlock {
 public:
  static constexpr int kThreads = kStepRowWarps * kWarpSize;

  REPRISE_FN StepRowBlock(float* parts, uint64_t* barrier) : parts_(parts), barrier_(barrier) {}
  template <typename V>
  REPRISE_FN V* Shared() const {
    return reinterpret_cast<V*>(parts_);
  }
  template <typename F>
  REPRISE_FN void For(int n, F f) const {
    for (int i = ThreadX(); i < n; i += kThreads) f(i);
  }
  REPRISE_FN void Sync() { SyncThreads(kThreads, barrier_, turn_++); }

 private:
  float* const parts_;
  uint64_t* const barrier_;
  uint32_t turn_ = 0;
};

// A row of RMSNorm, with the sums of its own kernel of `threads` threads: a warp here does the work
// of several warps there, one after another. No call: arguments that lay in local memory would come
// from far away, since who looks at words of other blocks has nothing left in its cache.
template <typename T>
class StepNorm {
 public:
  REPRISE_FN StepNorm(const StepFlags& flags, uint32_t stage, StepRowBlock& block, float* parts)
      : flags_(flags),
        stage_(stage),
        a_(flags.Stage(stage).norm),
        threads_(static_cast<int>(flags.Stage(stage).threads)),
        block_(block),
        parts_(parts) {}

  REPRISE_FN void Run(uint32_t r) const {
    const int64_t in_row = a_.gather != nullptr ? a_.gather[r] : r;
    const Row row(a_, in_row, r);
    Pack x[kStepNormWarpsPerWarp][kNormPacksPerThread];
    flags_.WaitBefore(stage_);
    ForPacks(row, [&](int i, int w, int v) { x[w][v] = row.Residual(i); });
    if (row.has_branch())
      ForPacks(row, [&](int i, int w, int v) { x[w][v] = row.Add(x[w][v], row.Branch(i)); });
    float squares[kStepNormWarpsPerWarp] = {};
    ForPacks(row, [&](int i, int w, int v) {
      row.Keep(i, x[w][v]);
      squares[w] += NormSquares(x[w][v]);
    });
    REPRISE_UNROLL
    for (int w = 0; w < kStepNormWarpsPerWarp; ++w) {
      if (WarpOf(w) * kWarpSize >= threads_) continue;
      for (int d = kWarpSize / 2; d > 0; d >>= 1) squares[w] += ShuffleXor(squares[w], d);
      if (Lane() == 0) parts_[WarpOf(w)] = squares[w];
    }
    block_.Sync();
    const float scale = row.Scale(SumOfWarps());
    ForPacks(row, [&](int i, int w, int v) { row.Store(i, x[w][v], scale, row.Weight(i)); });
    block_.Sync();  // the parts have been read
  }

 private:
  static constexpr int kPack = 16 / sizeof(T);
  using Row = NormRow<T, kPack>;
  using Pack = typename Row::Pack;

  // The w-th warp that this one stands for.
  REPRISE_FN static int WarpOf(int w) { return w * kStepRowWarps + Warp(); }
  // f(index, w, v) for every pack of the thread: the v-th of its lane of that warp.
  template <typename F>
  REPRISE_FN void ForPacks(const Row& row, F f) const {
    REPRISE_UNROLL
    for (int w = 0; w < kStepNormWarpsPerWarp; ++w) {
      if (WarpOf(w) * kWarpSize >= threads_) continue;
      REPRISE_UNROLL
      for (int v = 0; v < kNormPacksPerThread; ++v) {
        const int i = (WarpOf(w) * kNormPacksPerThread + v) * kWarpSize + Lane();
        if (i < row.packs()) f(i, w, v);
      }
    }
  }
  // As Block::Reduce adds them up.
  REPRISE_FN float SumOfWarps() const {
    float sum = Lane() < threads_ / kWarpSize ? parts_[Lane()] : 0.0f;
    for (int d = kWarpSize / 2; d > 0; d >>= 1) sum += ShuffleXor(sum, d);
    return sum;
  }

  const StepFlags& flags_;
  const uint32_t stage_;
  const RmsNormArgs a_;
  const int threads_;
  StepRowBlock& block_;
  float* const parts_;
};

template <typename T, int kHeadSize>
class StepRows {
 public:
  using Shared = BulkShared<T, kHeadSize, StepKvStages(kHeadSize)>;

  REPRISE_FN StepRows(const StepFlags& flags, unsigned char* shared)
      : flags_(flags), shared_(shared), kv_{shared + kLayout.attention} {}

  // The warps that do rows.
  REPRISE_FN void Run() {
    StepRowBlock block(
        Floats(kLayout.head_parts),
        reinterpret_cast<uint64_t*>(shared_ + kLayout.barriers) + StepBarriers::kRows);
    BulkConsumerPlace place;
    for (uint32_t stage = 0; stage < flags_.num_stages(); ++stage) {
      const StageKind kind = flags_.Stage(stage).kind;
      if (kind == StageKind::kNorm) {
        ForRows(stage, [&](uint32_t row) {
          StepNorm<T>(flags_, stage, block, Floats(kLayout.row_parts)).Run(row);
        });
      } else if (kind == StageKind::kRopeAppend) {
        ForRows(stage, [&](uint32_t row) { RopeAppend(block, stage, row); });
      } else if (kind == StageKind::kAttention) {
        block.Sync();  // nobody reads the arguments of the layer before
        CopyArgs(stage, kForCompute, ThreadX(), StepRowBlock::kThreads);
        block.Sync();
        ForShares(stage, [&](const DecodeShare&) {
          const StepShareOrder order(flags_, stage);
          place =
              BulkConsumer<T, false, Shared, StepShareOrder>(*Args(kForCompute), kv_, order, place)
                  .Run();
        });
      }
    }
  }
  // The warp that requests KV.
  REPRISE_FN void RequestKv() {
    BulkProducerPlace place;
    ForAttention(kForRequests, [&](uint32_t stage, const DecodeShare& share) {
      const StepShareOrder order(flags_, stage);
      place = BulkProducer<T, false, Shared, StepShareOrder>(*Args(kForRequests), kv_, share, order,
                                                             place)
                  .Run();
    });
  }
  // The warp that counts arrivals.
  REPRISE_FN void CountArrivals() {
    uint32_t items = 0;
    ForAttention(kForArrivals, [&](uint32_t stage, const DecodeShare&) {
      const StepShareOrder order(flags_, stage);
      items = CountBulkArrivals<false, Shared>(*Args(kForArrivals), kv_, order, items);
    });
  }

  // By all of the block.
  REPRISE_FN void Init() const {
    if (Warp() == 0) InitBulkBarriers(kv_, false);
    ClearBulkQueries(kv_, kStepThreads);
    if (ThreadX() == 0)
      BarrierInit(reinterpret_cast<uint64_t*>(shared_ + kLayout.barriers) + StepBarriers::kRows,
                  StepRowBlock::kThreads);
  }

 private:
  static constexpr StepSharedLayout kLayout = StepLayout(kHeadSize);

  REPRISE_FN float* Floats(uint32_t offset) const {
    return reinterpret_cast<float*>(shared_ + offset);
  }

  // Arguments of attention are looked at for every chunk, so that those of the layer at hand lie in
  // shared memory: three times, as warps are not all at the same layer.
  enum ArgsUse : uint32_t { kForCompute, kForRequests, kForArrivals };
  REPRISE_FN AttentionArgs* Args(ArgsUse use) const {
    return reinterpret_cast<AttentionArgs*>(shared_ + kLayout.args) + use;
  }
  REPRISE_FN void CopyArgs(uint32_t stage, ArgsUse use, int thread, int threads) const {
    constexpr int kWords = sizeof(AttentionArgs) / sizeof(uint64_t);
    static_assert(sizeof(AttentionArgs) % sizeof(uint64_t) == 0);
    const auto* const from = reinterpret_cast<const uint64_t*>(&flags_.Stage(stage).attention);
    auto* const to = reinterpret_cast<uint64_t*>(Args(use));
    for (int i = thread; i < kWords; i += threads) to[i] = from[i];
  }

  // f(row) for the block's rows of a stage; f waits for what comes before.
  template <typename F>
  REPRISE_FN void ForRows(uint32_t stage, F f) const {
    const uint32_t rows = flags_.Rows(stage);
    for (uint32_t row = static_cast<uint32_t>(BlockX()); row < rows;
         row += static_cast<uint32_t>(GridX())) {
      f(row);
      flags_.AddDone(stage);
    }
  }
  REPRISE_FN void RopeAppend(StepRowBlock& block, uint32_t stage, uint32_t row) const {
    constexpr int kPack = 16 / sizeof(T);
    const RopeAppendArgs a = flags_.Stage(stage).rope;
    flags_.WaitBefore(stage);
    if (a.q_norm != nullptr) {
      RopeAppendToken<T, T, kPack, true>(block, a, row);
      block.Sync();  // the parts have been read
    } else {
      RopeAppendToken<T, T, kPack, false>(block, a, row);
    }
  }

  // f(share) for the block's shares that have work.
  template <typename F>
  REPRISE_FN void ForShares(uint32_t stage, F f) const {
    const StepStage& s = flags_.Stage(stage);
    for (uint32_t i = static_cast<uint32_t>(BlockX()); i < s.num_shares;
         i += static_cast<uint32_t>(GridX())) {
      const DecodeShare share = s.attention.shares[i];
      if (!(share.begin == share.end)) f(share);
    }
  }
  template <typename F>
  REPRISE_FN void ForAttention(ArgsUse use, F f) const {
    for (uint32_t stage = 0; stage < flags_.num_stages(); ++stage) {
      if (flags_.Stage(stage).kind != StageKind::kAttention) continue;
      SyncWarp();
      CopyArgs(stage, use, Lane(), kWarpSize);
      SyncWarp();
      ForShares(stage, [&](const DecodeShare& share) { f(stage, share); });
    }
  }

  const StepFlags& flags_;
  unsigned char* const shared_;
  const Shared kv_;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STEP_KERNEL_STEP_ROWS_H_
