// SPDX-License-Identifier: Apache-2.0
// Bodies of the ops of Mamba-2 layers, block style. Products are added by MultiplyAdd, and nothing
// else fuses: a token's bits must not depend on which copy of an unrolled loop it falls to.
#ifndef REPRISE_KERNELS_MAMBA_MAMBA_BODY_H_
#define REPRISE_KERNELS_MAMBA_MAMBA_BODY_H_

#include <type_traits>

#include "kernels/device/block.h"
#include "kernels/mamba/mamba_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// A row's part of this step.
struct MambaRow {
  int64_t slot;
  int64_t first;  // token of the step
  int count;      // 0: nothing to do
  bool is_new;    // whatever is in its state does not count
};

REPRISE_FN MambaRow LoadMambaRow(const MambaRows& rows, int e) {
  if (static_cast<uint32_t>(e) >= *rows.num_rows) return {0, 0, 0, false};
  const uint32_t first = rows.query_start[e], end = rows.query_start[e + 1];
  return {rows.entries[e].slot, first, static_cast<int>(end - first), rows.context_before[e] == 0};
}

REPRISE_FN float MambaSilu(float x) { return x / (1.0f + Exp(-x)); }

// log(1 + exp(x)), also where exp(x) is small beside 1: u - 1 has the rounding error of u = 1 + e,
// and log(u) nearly the same one.
REPRISE_FN float Softplus(float x) {
  if (x > 20.0f) return x;
  const float e = Exp(x);
  const float u = 1.0f + e;
  const float lost = u - 1.0f;
  return lost == 0.0f ? e : Log(u) * (e / lost);
}

// ---- convolution ----

// Input `t` of the row, which counts from this step's first token; before it the state's. To f32
// and back is exact.
template <typename T>
REPRISE_FN float ConvInput(const MambaConvArgs& a, const MambaRow& row, const T* state, int t,
                           int c) {
  if (t < 0 && row.is_new) return 0.0f;
  const T* const from = t < 0 ? state + static_cast<int64_t>(t + a.width - 1) * a.channels + c
                              : static_cast<const T*>(a.projected) +
                                    (row.first + t) * a.projected_size + a.offset + c;
  return ToFloat(*from);
}

// The row that has token `t` of the step.
REPRISE_FN int MambaRowOf(Block& b, const MambaRows& rows, uint32_t t) {
  struct Entry {
    uint32_t e;
  };
  // Behind rows without tokens, which begin there too, is the one that has it.
  return static_cast<int>(
      b.Combine(
           static_cast<int>(*rows.num_rows), Entry{0},
           [&](int e) { return Entry{rows.query_start[e] <= t ? static_cast<uint32_t>(e) : 0u}; },
           [](Entry x, Entry y) { return x.e < y.e ? y : x; })
          .e);
}

// What is convolved of a row: its tokens begin .. end - 1, of `channels` channels from `first` on.
struct ConvPiece {
  int begin, end;
  int first, channels;
};

template <typename T>
REPRISE_FN void Convolve(Block& b, const MambaConvArgs& a, const MambaRow& row, const T* state,
                         const ConvPiece& piece) {
  T* const out = static_cast<T*>(a.out) + row.first * a.channels;
  b.For((piece.end - piece.begin) * piece.channels, [&](int i) {
    const int of_tokens = i / piece.channels, t = piece.begin + of_tokens;
    const int c = piece.first + i - of_tokens * piece.channels;
    float sum = a.bias != nullptr ? a.bias[c] : 0.0f;
    for (int k = 0; k < a.width; ++k)
      sum = MultiplyAdd(a.weight[static_cast<int64_t>(c) * a.width + k],
                        ConvInput(a, row, state, t - a.width + 1 + k, c), sum);
    out[static_cast<int64_t>(t) * a.channels + c] = FromFloat<T>(MambaSilu(sum));
  });
}
// The same sums of kWidth inputs each, which a thread keeps from token to token.
template <typename T, int kWidth>
REPRISE_FN void ConvolveInTurn(Block& b, const MambaConvArgs& a, const MambaRow& row,
                               const T* state, const ConvPiece& piece) {
  T* const out = static_cast<T*>(a.out) + row.first * a.channels;
  b.For(piece.channels, [&](int i) {
    const int c = piece.first + i;
    float weight[kWidth], input[kWidth];
    REPRISE_UNROLL
    for (int k = 0; k < kWidth; ++k) weight[k] = a.weight[static_cast<int64_t>(c) * kWidth + k];
    REPRISE_UNROLL
    for (int k = 1; k < kWidth; ++k)
      input[k] = ConvInput(a, row, state, piece.begin - kWidth + k, c);
    const float bias = a.bias != nullptr ? a.bias[c] : 0.0f;
    REPRISE_UNROLL_BY(4)
    for (int t = piece.begin; t < piece.end; ++t) {
      REPRISE_UNROLL
      for (int k = 1; k < kWidth; ++k) input[k - 1] = input[k];
      input[kWidth - 1] = ConvInput(a, row, state, t, c);
      float sum = bias;
      REPRISE_UNROLL
      for (int k = 0; k < kWidth; ++k) sum = MultiplyAdd(weight[k], input[k], sum);
      out[static_cast<int64_t>(t) * a.channels + c] = FromFloat<T>(MambaSilu(sum));
    }
  });
}
template <typename T>
REPRISE_FN void ConvolvePiece(Block& b, const MambaConvArgs& a, const MambaRow& row, const T* state,
                              const ConvPiece& piece) {
  constexpr int kUsualWidth = 4;  // of the published models
  if (a.width == kUsualWidth) {
    ConvolveInTurn<T, kUsualWidth>(b, a, row, state, piece);
  } else {
    Convolve(b, a, row, state, piece);
  }
}

// Grid x: for each row its first tokens, which may read its state, and the state that it leaves;
// behind them pieces of the step's tokens, for what else rows have there.
template <typename T>
REPRISE_FN void MambaConvBody(Block& b, const MambaConvArgs& a) {
  const int begin = b.y() * kMambaConvChannels;
  const int left = a.channels - begin;
  const int channels = left < kMambaConvChannels ? left : kMambaConvChannels;
  const int head = MambaConvHeadTokens(a.width);
  if (b.x() >= a.max_rows) {
    const auto from = static_cast<uint32_t>((b.x() - a.max_rows) * kMambaConvTokens);
    if (from >= a.rows.query_start[*a.rows.num_rows]) return;
    const MambaRow row = LoadMambaRow(a.rows, MambaRowOf(b, a.rows, from));
    const int piece = static_cast<int>(from - row.first);
    const int t = piece < head ? head : piece;
    const int end = row.count < piece + kMambaConvTokens ? row.count : piece + kMambaConvTokens;
    if (t < end) ConvolvePiece<T>(b, a, row, nullptr, {t, end, begin, channels});
    return;
  }
  const MambaRow row = LoadMambaRow(a.rows, b.x());
  if (row.count == 0) return;
  T* const state = static_cast<T*>(a.state) + row.slot * (a.width - 1) * a.channels;
  const int end = row.count < head ? row.count : head;
  ConvolvePiece<T>(b, a, row, state, {0, end, begin, channels});
  b.Sync();
  // Oldest first: what is read lies behind what is written.
  b.For(channels, [&](int i) {
    const int c = begin + i;
    for (int j = 0; j < a.width - 1; ++j)
      state[static_cast<int64_t>(j) * a.channels + c] =
          FromFloat<T>(ConvInput(a, row, state, row.count - a.width + 1 + j, c));
  });
}

// ---- scan ----

// A block has up to kDim elements of one head, for all of a row's tokens, which it walks in pieces.
// A thread has one of the elements, or two kMambaItems apart, so that what it reads of B and C
// serves both, and of the state of each the packs lane, lane + kMambaLanes, ..., in registers from
// the first token to the last. kWidth: of a pack. kPacks: that there is room for, of an element;
// kMambaFewPacks: and that there are.
template <typename T, int kWidth, int kPacks>
class MambaScanBlock {
 public:
  REPRISE_FN MambaScanBlock(Block& b, const MambaScanArgs& a, int head, int first_dim)
      : b_(b),
        a_(a),
        head_(head),
        first_dim_(first_dim),
        dims_(a.head_dim - first_dim < kDim ? a.head_dim - first_dim : kDim),
        size_(kWhole ? kPacks * kMambaLanes * kWidth : a.state_size),
        room_(RoomFor(2 * (size_ / kWidth))),
        piece_(PieceTokens(room_)),
        inner_(a.num_heads * a.head_dim),
        group_(head / (a.num_heads / a.num_groups)),
        token_size_(inner_ + 2 * static_cast<int64_t>(a.num_groups) * size_),
        d_(a.d[head]),
        in_(b.Shared<float>()),
        parts_(in_ + kMambaScanInPacks * kMambaScanThreads * kWidth),
        x_(parts_ + kMambaScanTokens * kDim * kMambaLanes),
        dt_(x_ + 2 * kMambaScanTokens * kDim),
        decay_(dt_ + kMambaScanThreads) {}

  // Rows in turn, from the block's own on.
  REPRISE_FN void Run() {
    const auto rows = static_cast<int>(*a_.rows.num_rows);
    REPRISE_UNROLL_BY(1)
    for (int e = b_.y(); e < rows; e += b_.grid_y()) {
      row_ = LoadMambaRow(a_.rows, e);
      if (row_.count == 0) continue;
      ScanRow();
      b_.Sync();
    }
  }

 private:
  REPRISE_FN void ScanRow() {
    LoadState();
    LoadTokens(0);
    int steps_begin = 0, steps_end = 0, turn = 0;
    for (int begin = 0; begin < row_.count; begin += piece_, turn ^= 1) {
      const int count = row_.count - begin < piece_ ? row_.count - begin : piece_;
      float* const x = x_ + turn * kMambaScanTokens * kDim;
      if (begin == steps_end) {
        steps_begin = begin;
        steps_end = begin + ComputeSteps(begin);
      }
      StoreTokens(x);
      b_.Sync();
      LoadTokens(begin + piece_);
      Walk(begin - steps_begin, count, x);
      b_.Sync();
      StoreOutputs(begin, count, x);
    }
    StoreState();
  }

  static constexpr bool kWhole = kPacks == kMambaFewPacks;
  static constexpr int kDim = MambaScanDim(kPacks), kItemDim = kDim / kMambaItems;
  using Pack = Vec<float, kWidth>;
  struct Tile {
    Pack s[kItemDim][kPacks];
  };
  // As it is loaded: of elements of 16 bits, each would take a register.
  using RawPack = std::conditional_t<kWidth == 1, T, Vec<uint32_t, kWidth * sizeof(T) / 4>>;
  static constexpr int kXs = kMambaScanTokens * kDim / kMambaScanThreads;
  struct Raw {
    RawPack in[kMambaScanInPacks];
    T x[kXs];
  };

  // The exponent of the power of two that is no less than `packs`, those of B and C of a token.
  REPRISE_FN static int RoomFor(int packs) {
    int room = 0;
    while (1 << room < packs) ++room;
    return room;
  }
  REPRISE_FN static int PieceTokens(int room) {
    const int fit = kMambaScanInPacks * kMambaScanThreads >> room;
    return fit < kMambaScanTokens ? fit : kMambaScanTokens;
  }
  // Of a thread: its element k, and where its pack j begins in the state.
  REPRISE_FN static int DimOf(int i, int k) { return i / kMambaLanes + k * kMambaItems; }
  REPRISE_FN static int StateOf(int i, int j) {
    return (j * kMambaLanes + i % kMambaLanes) * kWidth;
  }
  REPRISE_FN bool HasState(int i, int j) const { return kWhole || StateOf(i, j) < size_; }

  // Calls f(own, memory, inside) for each pack that a thread has room for.
  template <typename F>
  REPRISE_FN void ForState(F f) {
    float* const state =
        a_.state + ((row_.slot * a_.num_heads + head_) * a_.head_dim + first_dim_) *
                       static_cast<int64_t>(size_);
    b_.template For<1>(kMambaScanThreads, [&](LocalIndex at) {
      REPRISE_UNROLL
      for (int k = 0; k < kItemDim; ++k) {
        const int dim = DimOf(at.i, k);
        float* const of_dim = state + static_cast<int64_t>(dim) * size_;
        REPRISE_UNROLL
        for (int j = 0; j < kPacks; ++j)
          f(tile_[at].s[k][j], of_dim + StateOf(at.i, j), dim < dims_ && HasState(at.i, j));
      }
    });
  }
  REPRISE_FN void LoadState() {
    const bool zero = row_.is_new;
    ForState([&](Pack& own, const float* from, bool inside) {
      own = {};
      if (inside && !zero) own = LoadVec<kWidth>(from);
    });
  }
  REPRISE_FN void StoreState() {
    ForState([&](const Pack& own, float* to, bool inside) {
      if (inside) StoreVec(to, own);
    });
  }

  // Of as many tokens as whole pieces of them have threads, from `begin` on: the time step, and
  // what it leaves of the state. Returns how many.
  REPRISE_FN int ComputeSteps(int begin) const {
    const int left = row_.count - begin, room = kMambaScanThreads / piece_ * piece_;
    const T* const given = static_cast<const T*>(a_.projected) +
                           (row_.first + begin) * a_.projected_size + a_.projected_size -
                           a_.num_heads + head_;
    b_.For(left < room ? left : room, [&](int t) {
      const float raw = ToFloat(given[static_cast<int64_t>(t) * a_.projected_size]);
      const float soft = Softplus(raw + a_.dt_bias[head_]);
      const float least = soft > a_.min_dt ? soft : a_.min_dt;
      // NaN stays NaN.
      dt_[t] = soft != soft ? soft : least < a_.max_dt ? least : a_.max_dt;
      decay_[t] = Exp(-Exp(a_.a_log[head_]) * dt_[t]);
    });
    return room;
  }

  // A piece's x, B and C, to registers. What is beyond the row's tokens is not read.
  REPRISE_FN void LoadTokens(int begin) {
    const int left = row_.count - begin, packs = size_ / kWidth;
    const T* const tokens =
        static_cast<const T*>(a_.convolved) + (row_.first + begin) * token_size_;
    b_.template For<1>(kMambaScanThreads, [&](LocalIndex at) {
      Raw& raw = raw_[at];
      const int pack = at.i & ((1 << room_) - 1), first = at.i >> room_;
      const bool is_c = pack >= packs;
      const T* from = tokens + first * token_size_ + inner_ +
                      static_cast<int64_t>(is_c ? a_.num_groups + group_ : group_) * size_ +
                      (is_c ? pack - packs : pack) * kWidth;
      const int tokens_apart = kMambaScanThreads >> room_;
      REPRISE_UNROLL
      for (int r = 0; r < kMambaScanInPacks; ++r, from += tokens_apart * token_size_) {
        if (pack >= 2 * packs || first + r * tokens_apart >= left) continue;
        raw.in[r] = *reinterpret_cast<const RawPack*>(from);
      }
      const int dim = at.i % kDim, t = at.i / kDim;
      constexpr int kApart = kMambaScanThreads / kDim;
      const T* of_x = tokens + t * token_size_ + head_ * a_.head_dim + first_dim_ + dim;
      REPRISE_UNROLL
      for (int r = 0; r < kXs; ++r, of_x += kApart * token_size_)
        if (t + r * kApart < left && dim < dims_) raw.x[r] = *of_x;
    });
  }
  // And from there to shared memory, as f32. What is beyond the piece is never read.
  REPRISE_FN void StoreTokens(float* x) {
    b_.template For<1>(kMambaScanThreads, [&](LocalIndex at) {
      const Raw& raw = raw_[at];
      REPRISE_UNROLL
      for (int r = 0; r < kMambaScanInPacks; ++r) {
        T given[kWidth];
        __builtin_memcpy(given, &raw.in[r], sizeof(given));
        Pack in;
        REPRISE_UNROLL
        for (int j = 0; j < kWidth; ++j) in.v[j] = ToFloat(given[j]);
        StoreVec(in_ + (at.i + r * kMambaScanThreads) * kWidth, in);
      }
      REPRISE_UNROLL
      for (int r = 0; r < kXs; ++r) x[at.i + r * kMambaScanThreads] = ToFloat(raw.x[r]);
    });
  }

  // What a thread reads of a piece's tokens: its elements of x, its part of B and C, the time step
  // and the decay. And where its sums go.
  struct Walked {
    const float *x, *in, *dt, *decay;
    float* parts;
  };
  REPRISE_FN void Walk(int of_steps, int count, const float* x) {
    b_.template For<1>(kMambaScanThreads, [&](LocalIndex at) {
      Walked w = {x + DimOf(at.i, 0), in_ + StateOf(at.i, 0), dt_ + of_steps, decay_ + of_steps,
                  parts_ + at.i};
      int t = 0;
      for (; t + 2 <= count; t += 2) WalkTokens<2>(at, w);
      if (t < count) WalkTokens<1>(at, w);
    });
  }
  // All is read before sums are stored, so that what one token waits for another runs beside.
  template <int kTokens>
  REPRISE_FN void WalkTokens(LocalIndex at, Walked& w) {
    float sum[kTokens][kItemDim] = {}, step[kTokens][kItemDim], decay[kTokens];
    REPRISE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      decay[t] = w.decay[t];
      REPRISE_UNROLL
      for (int k = 0; k < kItemDim; ++k) step[t][k] = w.dt[t] * w.x[t * kDim + k * kMambaItems];
    }
    REPRISE_UNROLL
    for (int j = 0; j < kPacks; ++j) {
      if (!HasState(at.i, j)) continue;
      REPRISE_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const float* const in = w.in + (t << room_) * kWidth + j * kMambaLanes * kWidth;
        const Pack of_b = LoadVec<kWidth>(in), of_c = LoadVec<kWidth>(in + size_);
        REPRISE_UNROLL
        for (int k = 0; k < kItemDim; ++k) {
          Pack& s = tile_[at].s[k][j];
          REPRISE_UNROLL
          for (int e = 0; e < kWidth; ++e) {
            s.v[e] = MultiplyAdd(s.v[e], decay[t], step[t][k] * of_b.v[e]);
            sum[t][k] = MultiplyAdd(s.v[e], of_c.v[e], sum[t][k]);
          }
        }
      }
    }
    REPRISE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      REPRISE_UNROLL
      for (int k = 0; k < kItemDim; ++k)
        w.parts[(t * kItemDim + k) * kMambaScanThreads] = sum[t][k];
    }
    w.x += kTokens * kDim;
    w.in += (kTokens << room_) * kWidth;
    w.dt += kTokens;
    w.decay += kTokens;
    w.parts += kTokens * kItemDim * kMambaScanThreads;
  }

  REPRISE_FN void StoreOutputs(int begin, int count, const float* x) const {
    T* const y = static_cast<T*>(a_.y) + (row_.first + begin) * inner_ +
                 static_cast<int64_t>(head_) * a_.head_dim + first_dim_;
    b_.For(count * kDim, [&](int i) {
      const int t = i / kDim, dim = i % kDim;
      if (dim >= dims_) return;
      const auto part = LoadVec<kMambaLanes>(parts_ + i * kMambaLanes);
      float sum = 0.0f;
      REPRISE_UNROLL
      for (int lane = 0; lane < kMambaLanes; ++lane) sum += part.v[lane];
      y[t * inner_ + dim] = FromFloat<T>(MultiplyAdd(d_, x[i], sum));
    });
  }

  Block& b_;
  const MambaScanArgs& a_;
  MambaRow row_;
  const int head_, first_dim_;
  const int dims_;       // of the block
  const int size_;       // of the state
  const int room_;       // of B and C of a token: 1 << room_ packs
  const int piece_;      // tokens
  const int64_t inner_;  // elements of all heads
  const int group_;
  const int64_t token_size_;
  const float d_;
  // In shared memory, of a piece: [tokens, 1 << room_, kWidth], B and C; [tokens, kDim,
  // kMambaLanes], sums; of two pieces in turn [tokens, kDim]; of several pieces' tokens
  // one number each.
  float *const in_, *const parts_, *const x_, *const dt_, *const decay_;
  Local<Tile, 1> tile_;
  Local<Raw, 1> raw_;
};

// Grid x: pieces of heads; grid y: rows, in turn.
template <typename T>
REPRISE_FN void MambaScanBody(Block& b, const MambaScanArgs& a) {
  const int dim = MambaScanDim(MambaScanPacks(a)), pieces = (a.head_dim + dim - 1) / dim;
  const int head = b.x() / pieces, first = (b.x() - head * pieces) * dim;
  if (MambaScanWidth(a) == 1) {
    MambaScanBlock<T, 1, kMambaMostPacks>(b, a, head, first).Run();
  } else if (MambaScanPacks(a) == kMambaFewPacks) {
    MambaScanBlock<T, kMambaWidth, kMambaFewPacks>(b, a, head, first).Run();
  } else {
    MambaScanBlock<T, kMambaWidth, kMambaMostPacks>(b, a, head, first).Run();
  }
}

// ---- gated norm ----

// A row of the norm, in packs of kWidth numbers, which is read twice.
template <typename T, int kWidth>
REPRISE_FN void MambaNormRow(Block& b, const MambaNormArgs& a, int64_t t) {
  using Pack = Vec<T, kWidth>;
  const T* const y = static_cast<const T*>(a.y) + t * a.size;
  const T* const gate = static_cast<const T*>(a.projected) + t * a.projected_size;
  const T* const weight = static_cast<const T*>(a.weight);
  T* const out = static_cast<T*>(a.out) + t * a.size;
  const auto gated = [](const Pack& of_y, const Pack& of_gate, int j) {
    return ToFloat(of_y.v[j]) * MambaSilu(ToFloat(of_gate.v[j]));
  };
  const int packs = a.size / kWidth;
  const float squares = b.Sum(packs, [&](int i) {
    const Pack of_y = LoadVec<kWidth>(y + i * kWidth), of_gate = LoadVec<kWidth>(gate + i * kWidth);
    float sum = 0.0f;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const float g = gated(of_y, of_gate, j);
      sum += g * g;
    }
    return sum;
  });
  const float scale = Rsqrt(squares / static_cast<float>(a.size) + a.eps);
  b.For(packs, [&](int i) {
    const Pack of_y = LoadVec<kWidth>(y + i * kWidth), of_gate = LoadVec<kWidth>(gate + i * kWidth),
               of_weight = LoadVec<kWidth>(weight + i * kWidth);
    Pack result;
    REPRISE_UNROLL
    for (int j = 0; j < kWidth; ++j)
      result.v[j] = FromFloat<T>(gated(of_y, of_gate, j) * scale * ToFloat(of_weight.v[j]));
    StoreVec(out + i * kWidth, result);
  });
}

// One block per token.
template <typename T>
REPRISE_FN void MambaNormBody(Block& b, const MambaNormArgs& a) {
  const auto t = static_cast<uint32_t>(b.x());
  if (t >= *a.num_tokens) return;
  constexpr int kPack = 8;
  if (a.size % kPack == 0 && a.projected_size % kPack == 0) {
    MambaNormRow<T, kPack>(b, a, t);
  } else {
    MambaNormRow<T, 1>(b, a, t);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_MAMBA_MAMBA_BODY_H_
