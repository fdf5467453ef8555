// SPDX-License-Identifier: Apache-2.0
// Bodies of the ops of Mamba-2 layers, block style. Grid x is the row, or the token of the norm;
// grid y the piece of the channels, or the head. Products are added by MultiplyAdd, and nothing
// else fuses: a token's bits must not depend on which copy of an unrolled loop it falls to.
#ifndef REPRISE_KERNELS_MAMBA_MAMBA_BODY_H_
#define REPRISE_KERNELS_MAMBA_MAMBA_BODY_H_

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

template <typename T>
REPRISE_FN void MambaConvBody(Block& b, const MambaConvArgs& a) {
  const MambaRow row = LoadMambaRow(a.rows, b.x());
  if (row.count == 0) return;
  const int begin = b.y() * kMambaConvChannels;
  const int left = a.channels - begin;
  const int channels = left < kMambaConvChannels ? left : kMambaConvChannels;
  T* const state = static_cast<T*>(a.state) + row.slot * (a.width - 1) * a.channels;
  T* const out = static_cast<T*>(a.out) + row.first * a.channels;
  b.For(row.count * channels, [&](int i) {
    const int t = i / channels, c = begin + i - t * channels;
    float sum = a.bias != nullptr ? a.bias[c] : 0.0f;
    for (int k = 0; k < a.width; ++k)
      sum = MultiplyAdd(a.weight[static_cast<int64_t>(c) * a.width + k],
                        ConvInput(a, row, state, t - a.width + 1 + k, c), sum);
    out[static_cast<int64_t>(t) * a.channels + c] = FromFloat<T>(MambaSilu(sum));
  });
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

// Where the elements of one token of one head lie.
template <typename T>
struct ScanToken {
  const T* x;
  const T* b;
  const T* c;
};
template <typename T>
REPRISE_FN ScanToken<T> ScanTokenAt(const MambaScanArgs& a, int64_t token, int head) {
  const int inner = a.num_heads * a.head_dim, group = head / (a.num_heads / a.num_groups);
  const T* const x = static_cast<const T*>(a.convolved) +
                     token * (inner + 2 * static_cast<int64_t>(a.num_groups) * a.state_size);
  const T* const b = x + inner + static_cast<int64_t>(group) * a.state_size;
  return {x + static_cast<int64_t>(head) * a.head_dim, b,
          b + static_cast<int64_t>(a.num_groups) * a.state_size};
}

// Up to kMambaScanTokens tokens from `begin` on. Items are parts of an element p of the head: lane
// l of kMambaLanes has the packs l, l + kMambaLanes, ... of its state. parts: [kMambaScanTokens,
// items]; dt and decay: [kMambaScanTokens].
template <typename T, int kWidth>
REPRISE_FN void ScanPiece(Block& b, const MambaScanArgs& a, const MambaRow& row, int begin,
                          float* state, float* parts, const float* dt, const float* decay) {
  const int head = b.y(), items = a.head_dim * kMambaLanes;
  const int count = row.count - begin < kMambaScanTokens ? row.count - begin : kMambaScanTokens;
  const bool from_zero = row.is_new && begin == 0;
  const int64_t first = row.first + begin;
  b.For(items, [&](int i) {
    const int p = i / kMambaLanes, lane = i - p * kMambaLanes;
    float sum[kMambaScanTokens] = {}, step[kMambaScanTokens] = {};
    REPRISE_UNROLL
    for (int t = 0; t < kMambaScanTokens; ++t)
      if (t < count) step[t] = dt[t] * ToFloat(ScanTokenAt<T>(a, first + t, head).x[p]);
    float* const own = state + static_cast<int64_t>(p) * a.state_size;
    for (int n = lane * kWidth; n < a.state_size; n += kMambaLanes * kWidth) {
      Vec<float, kWidth> s = {};
      if (!from_zero) s = LoadVec<kWidth>(own + n);
      REPRISE_UNROLL
      for (int t = 0; t < kMambaScanTokens; ++t) {
        if (t >= count) continue;
        const ScanToken<T> token = ScanTokenAt<T>(a, first + t, head);
        const Vec<T, kWidth> in = LoadVec<kWidth>(token.b + n), out = LoadVec<kWidth>(token.c + n);
        REPRISE_UNROLL
        for (int j = 0; j < kWidth; ++j) {
          s.v[j] = MultiplyAdd(s.v[j], decay[t], step[t] * ToFloat(in.v[j]));
          sum[t] = MultiplyAdd(s.v[j], ToFloat(out.v[j]), sum[t]);
        }
      }
      StoreVec(own + n, s);
    }
    REPRISE_UNROLL
    for (int t = 0; t < kMambaScanTokens; ++t)
      if (t < count) parts[t * items + i] = sum[t];
  });
  b.Sync();
  T* const y = static_cast<T*>(a.y) + (first * a.num_heads + head) * a.head_dim;
  b.For(count * a.head_dim, [&](int i) {
    const int t = i / a.head_dim, p = i - t * a.head_dim;
    const float* const part = parts + t * items + p * kMambaLanes;
    float sum = 0.0f;
    REPRISE_UNROLL
    for (int lane = 0; lane < kMambaLanes; ++lane) sum += part[lane];
    const float x = ToFloat(ScanTokenAt<T>(a, first + t, head).x[p]);
    y[static_cast<int64_t>(t) * a.num_heads * a.head_dim + p] =
        FromFloat<T>(MultiplyAdd(a.d[head], x, sum));
  });
}

template <typename T>
REPRISE_FN void MambaScanBody(Block& b, const MambaScanArgs& a) {
  const MambaRow row = LoadMambaRow(a.rows, b.x());
  if (row.count == 0) return;
  const int head = b.y();
  float* const parts = b.Shared<float>();
  float* const dt = parts + a.head_dim * kMambaLanes * kMambaScanTokens;
  float* const decay = dt + kMambaScanTokens;
  float* const state = a.state + (row.slot * a.num_heads + head) * a.head_dim * a.state_size;
  const T* const given = static_cast<const T*>(a.projected) + a.projected_size - a.num_heads + head;
  constexpr int kWidth = 4;
  const bool packs = a.state_size % kWidth == 0 && a.num_heads * a.head_dim % kWidth == 0;
  for (int begin = 0; begin < row.count; begin += kMambaScanTokens) {
    const int left = row.count - begin;
    b.For(left < kMambaScanTokens ? left : kMambaScanTokens, [&](int t) {
      const float raw = ToFloat(given[(row.first + begin + t) * a.projected_size]);
      const float soft = Softplus(raw + a.dt_bias[head]);
      const float least = soft > a.min_dt ? soft : a.min_dt;
      // NaN stays NaN.
      dt[t] = soft != soft ? soft : least < a.max_dt ? least : a.max_dt;
      decay[t] = Exp(-Exp(a.a_log[head]) * dt[t]);
    });
    b.Sync();
    if (packs) {
      ScanPiece<T, kWidth>(b, a, row, begin, state, parts, dt, decay);
    } else {
      ScanPiece<T, 1>(b, a, row, begin, state, parts, dt, decay);
    }
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
