// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup on Hopper (wgmma, sm_90a); the contract is in matrix_group.h. Source: PTX
// ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" and "Tensor Copy".
#ifndef REPRISE_KERNELS_DEVICE_CUDA_MATRIX_GROUP_H_
#define REPRISE_KERNELS_DEVICE_CUDA_MATRIX_GROUP_H_

#include "kernels/device/fp8.h"
#include "kernels/device/matrix.h"
#include "runtime/tile_map.h"

namespace reprise::kernels::on_cuda {

// The eight values of fragment c as operands.
#define REPRISE_GROUP_D8(c)                                                            \
  "+f"(d[c].v[0]), "+f"(d[c].v[1]), "+f"(d[c].v[2]), "+f"(d[c].v[3]), "+f"(d[c].v[4]), \
      "+f"(d[c].v[5]), "+f"(d[c].v[6]), "+f"(d[c].v[7])
#define REPRISE_GROUP_D16 REPRISE_GROUP_D8(0), REPRISE_GROUP_D8(1)
#define REPRISE_GROUP_D32 REPRISE_GROUP_D16, REPRISE_GROUP_D8(2), REPRISE_GROUP_D8(3)
#define REPRISE_GROUP_D64                                                           \
  REPRISE_GROUP_D32, REPRISE_GROUP_D8(4), REPRISE_GROUP_D8(5), REPRISE_GROUP_D8(6), \
      REPRISE_GROUP_D8(7)
#define REPRISE_GROUP_R8 "{%0, %1, %2, %3, %4, %5, %6, %7}, "
#define REPRISE_GROUP_R16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
#define REPRISE_GROUP_R32                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define REPRISE_GROUP_R64                                                            \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "

#define REPRISE_GROUP_ROWS_16(type)                                                    \
  asm volatile(                                                                        \
      "{ .reg .pred add; setp.ne.b32 add, %10, 0; "                                    \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " " REPRISE_GROUP_R8 \
      "%8, %9, add, 1, 1, 0, 0; }"                                                     \
      : REPRISE_GROUP_D8(0)                                                            \
      : "l"(of_a), "l"(of_b), "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_ROWS_32(type)                                                     \
  asm volatile(                                                                         \
      "{ .reg .pred add; setp.ne.b32 add, %18, 0; "                                     \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " " REPRISE_GROUP_R16 \
      "%16, %17, add, 1, 1, 0, 0; }"                                                    \
      : REPRISE_GROUP_D16                                                               \
      : "l"(of_a), "l"(of_b), "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_ROWS_64(type)                                                     \
  asm volatile(                                                                         \
      "{ .reg .pred add; setp.ne.b32 add, %34, 0; "                                     \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " REPRISE_GROUP_R32 \
      "%32, %33, add, 1, 1, 0, 0; }"                                                    \
      : REPRISE_GROUP_D32                                                               \
      : "l"(of_a), "l"(of_b), "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_ROWS_128(type)                                                     \
  asm volatile(                                                                          \
      "{ .reg .pred add; setp.ne.b32 add, %66, 0; "                                      \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " REPRISE_GROUP_R64 \
      "%64, %65, add, 1, 1, 0, 0; }"                                                     \
      : REPRISE_GROUP_D64                                                                \
      : "l"(of_a), "l"(of_b), "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_E4M3_ROWS_16                                             \
  asm volatile(                                                                \
      "{ .reg .pred add; setp.ne.b32 add, %10, 0; "                            \
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 " REPRISE_GROUP_R8 \
      "%8, %9, add, 1, 1; }"                                                   \
      : REPRISE_GROUP_D8(0)                                                    \
      : "l"(of_a), "l"(of_b), "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_E4M3_ROWS_32                                              \
  asm volatile(                                                                 \
      "{ .reg .pred add; setp.ne.b32 add, %18, 0; "                             \
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 " REPRISE_GROUP_R16 \
      "%16, %17, add, 1, 1; }"                                                  \
      : REPRISE_GROUP_D16                                                       \
      : "l"(of_a), "l"(of_b), "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_E4M3_ROWS_64                                              \
  asm volatile(                                                                 \
      "{ .reg .pred add; setp.ne.b32 add, %34, 0; "                             \
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 " REPRISE_GROUP_R32 \
      "%32, %33, add, 1, 1; }"                                                  \
      : REPRISE_GROUP_D32                                                       \
      : "l"(of_a), "l"(of_b), "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_E4M3_ROWS_128                                              \
  asm volatile(                                                                  \
      "{ .reg .pred add; setp.ne.b32 add, %66, 0; "                              \
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " REPRISE_GROUP_R64 \
      "%64, %65, add, 1, 1; }"                                                   \
      : REPRISE_GROUP_D64                                                        \
      : "l"(of_a), "l"(of_b), "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_OWN_ROWS_16(type)                                                \
  asm volatile(                                                                        \
      "{ .reg .pred add; setp.ne.b32 add, %13, 0; "                                    \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " " REPRISE_GROUP_R8 \
      "{%8, %9, %10, %11}, %12, add, 1, 1, 0; }"                                       \
      : REPRISE_GROUP_D8(0)                                                            \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(of_b),                 \
        "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_OWN_ROWS_32(type)                                                 \
  asm volatile(                                                                         \
      "{ .reg .pred add; setp.ne.b32 add, %21, 0; "                                     \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " " REPRISE_GROUP_R16 \
      "{%16, %17, %18, %19}, %20, add, 1, 1, 0; }"                                      \
      : REPRISE_GROUP_D16                                                               \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(of_b),                  \
        "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_OWN_ROWS_64(type)                                                 \
  asm volatile(                                                                         \
      "{ .reg .pred add; setp.ne.b32 add, %37, 0; "                                     \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " REPRISE_GROUP_R32 \
      "{%32, %33, %34, %35}, %36, add, 1, 1, 0; }"                                      \
      : REPRISE_GROUP_D32                                                               \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(of_b),                  \
        "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_OWN_ROWS_128(type)                                                 \
  asm volatile(                                                                          \
      "{ .reg .pred add; setp.ne.b32 add, %69, 0; "                                      \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " REPRISE_GROUP_R64 \
      "{%64, %65, %66, %67}, %68, add, 1, 1, 0; }"                                       \
      : REPRISE_GROUP_D64                                                                \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(of_b),                   \
        "r"(static_cast<uint32_t>(add)))
#define REPRISE_GROUP_COLUMNS_128(type)                                                           \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " REPRISE_GROUP_R64 \
               "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                                           \
               : REPRISE_GROUP_D64                                                                \
               : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(of_b))
#define REPRISE_GROUP_COLUMNS_64(type)                                                           \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " REPRISE_GROUP_R32 \
               "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                          \
               : REPRISE_GROUP_D32                                                               \
               : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(of_b))

// One of these, by the type of the operands.
#define REPRISE_GROUP_OF(T, instruction)   \
  if constexpr (std::is_same_v<T, Bf16>) { \
    instruction("bf16");                   \
  } else {                                 \
    instruction("f16");                    \
  }

template <int kRegisters>
REPRISE_FN void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
REPRISE_FN void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

#define REPRISE_COPY_TILE(kind, hint, ...)                                               \
  asm volatile("cp.async.bulk.tensor." kind                                              \
               ".shared::cluster.global.mbarrier::complete_tx::bytes" hint ::__VA_ARGS__ \
               : "memory")
template <int kRank>
REPRISE_FN void CopyTile(void* to, const runtime::TileMap& map, const int32_t (&at)[kRank],
                         uint64_t* barrier) {
  static_assert(kRank == 2 || kRank == 4);
  if constexpr (kRank == 2) {
    REPRISE_COPY_TILE("2d", " [%0], [%1, {%3, %4}], [%2];", "r"(SharedAddress(to)), "l"(&map),
                      "r"(SharedAddress(barrier)), "r"(at[0]), "r"(at[1]));
  } else {
    REPRISE_COPY_TILE("4d", " [%0], [%1, {%3, %4, %5, %6}], [%2];", "r"(SharedAddress(to)),
                      "l"(&map), "r"(SharedAddress(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]),
                      "r"(at[3]));
  }
}
template <int kRank>
REPRISE_FN void CopyTileOnce(void* to, const runtime::TileMap& map, const int32_t (&at)[kRank],
                             uint64_t* barrier) {
  static_assert(kRank == 2 || kRank == 4);
  uint64_t evict_first;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first));
  if constexpr (kRank == 2) {
    REPRISE_COPY_TILE("2d", ".L2::cache_hint [%0], [%1, {%4, %5}], [%2], %3;",
                      "r"(SharedAddress(to)), "l"(&map), "r"(SharedAddress(barrier)),
                      "l"(evict_first), "r"(at[0]), "r"(at[1]));
  } else {
    REPRISE_COPY_TILE("4d", ".L2::cache_hint [%0], [%1, {%4, %5, %6, %7}], [%2], %3;",
                      "r"(SharedAddress(to)), "l"(&map), "r"(SharedAddress(barrier)),
                      "l"(evict_first), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
  }
}
#undef REPRISE_COPY_TILE

// ---- blocks of a cluster ----

REPRISE_FN void SyncCluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
REPRISE_FN uint32_t PeerAddress(uint32_t address, int block) {
  uint32_t at_peer;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at_peer) : "r"(address), "r"(block));
  return at_peer;
}
REPRISE_FN void StoreAtPeer(uint32_t at_peer, const Vec<float, 4>& x, uint32_t barrier_at_peer) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(at_peer),
      "f"(x.v[0]), "f"(x.v[1]), "f"(x.v[2]), "f"(x.v[3]), "r"(barrier_at_peer)
      : "memory");
}
// That a block's reads are over before its peer's next store, PTX promises only of an arrival that
// releases at the scope of the cluster. That is a fence of the whole device (MEMBAR.ALL.GPU), of
// 0.5 us for each. Nothing is written here that others are to see; the reads have to be over, and
// the fence of the block waits for them: measured on H100 and H200, where without it other bits
// came (docs/benchmarks/README.md), and kept up by LinearClusterTest on such devices.
REPRISE_FN void FinishSharedReads() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
REPRISE_FN void BarrierArriveAtPeer(uint32_t barrier_at_peer) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier_at_peer) : "memory");
}
REPRISE_FN void BarrierWaitForPeers(uint64_t* barrier, uint32_t phase) {
  const uint32_t address = SharedAddress(barrier), parity = phase & 1u;
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  }
}

class GroupProducts {
 public:
  REPRISE_FN void Begin() const { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  REPRISE_FN void Commit() const { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

  template <int kPending>
  REPRISE_FN void Wait(MatrixD<16> (&d)[8]) const {
    asm volatile("wgmma.wait_group.sync.aligned %64;"
                 : REPRISE_GROUP_D64
                 : "n"(kPending)
                 : "memory");
  }
  template <int kPending>
  REPRISE_FN void Wait(MatrixD<16> (&d)[4]) const {
    asm volatile("wgmma.wait_group.sync.aligned %32;"
                 : REPRISE_GROUP_D32
                 : "n"(kPending)
                 : "memory");
  }

  template <int kPending>
  REPRISE_FN void Wait(MatrixD<16> (&d)[2]) const {
    asm volatile("wgmma.wait_group.sync.aligned %16;"
                 : REPRISE_GROUP_D16
                 : "n"(kPending)
                 : "memory");
  }
  template <int kPending>
  REPRISE_FN void Wait(MatrixD<16> (&d)[1]) const {
    asm volatile("wgmma.wait_group.sync.aligned %8;"
                 : REPRISE_GROUP_D8(0)
                 : "n"(kPending)
                 : "memory");
  }

  template <typename T, int kFragments>
  REPRISE_FN void MultiplyRows(MatrixD<16> (&d)[kFragments], uint32_t a, uint32_t b, int k,
                               bool add) const {
    static_assert(kFragments == 1 || kFragments == 2 || kFragments == 4 || kFragments == 8);
    const uint64_t of_a = Step(Panels(a, 16), k), of_b = Step(Panels(b, 16), k);
    if constexpr (std::is_same_v<T, E4m3>) {
      if constexpr (kFragments == 8) {
        REPRISE_GROUP_E4M3_ROWS_128;
      } else if constexpr (kFragments == 4) {
        REPRISE_GROUP_E4M3_ROWS_64;
      } else if constexpr (kFragments == 2) {
        REPRISE_GROUP_E4M3_ROWS_32;
      } else {
        REPRISE_GROUP_E4M3_ROWS_16;
      }
    } else if constexpr (kFragments == 8) {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_ROWS_128)
    } else if constexpr (kFragments == 4) {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_ROWS_64)
    } else if constexpr (kFragments == 2) {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_ROWS_32)
    } else {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_ROWS_16)
    }
  }
  template <typename T, int kFragments>
  REPRISE_FN void MultiplyRows(MatrixD<16> (&d)[kFragments], const MatrixA& a, uint32_t b, int k,
                               bool add) const {
    static_assert(kFragments == 1 || kFragments == 2 || kFragments == 4 || kFragments == 8);
    const uint64_t of_b = Step(Panels(b, 16), k);
    if constexpr (kFragments == 8) {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_OWN_ROWS_128)
    } else if constexpr (kFragments == 4) {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_OWN_ROWS_64)
    } else if constexpr (kFragments == 2) {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_OWN_ROWS_32)
    } else {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_OWN_ROWS_16)
    }
  }
  template <typename T, int kFragments>
  REPRISE_FN void MultiplyColumns(MatrixD<16> (&d)[kFragments], const MatrixA& a, uint32_t b,
                                  uint32_t panel_bytes) const {
    static_assert(kFragments == 4 || kFragments == 8);
    const uint64_t of_b = Panels(b, panel_bytes);
    if constexpr (kFragments == 8) {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_COLUMNS_128)
    } else {
      REPRISE_GROUP_OF(T, REPRISE_GROUP_COLUMNS_64)
    }
  }

 private:
  // A matrix descriptor, in units of 16 bytes: where it begins, how far panels are apart (by rows
  // that is not looked at), eight rows of a panel, and swizzling by 128 bytes.
  REPRISE_FN static uint64_t Panels(uint32_t address, uint32_t panel_bytes) {
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 / 16} << 32;
    return kSwizzle128 | kEightRows | static_cast<uint64_t>(panel_bytes / 16) << 16 |
           (address & 0x3ffffu) >> 4;
  }
  // The same, 32 k bytes along the rows, of which a step costs less than a descriptor.
  REPRISE_FN static uint64_t Step(uint64_t panel, int k) {
    return panel + static_cast<uint64_t>(2 * k);
  }
};

#undef REPRISE_GROUP_OF
#undef REPRISE_GROUP_ROWS_16
#undef REPRISE_GROUP_ROWS_32
#undef REPRISE_GROUP_ROWS_64
#undef REPRISE_GROUP_ROWS_128
#undef REPRISE_GROUP_E4M3_ROWS_16
#undef REPRISE_GROUP_E4M3_ROWS_32
#undef REPRISE_GROUP_E4M3_ROWS_64
#undef REPRISE_GROUP_E4M3_ROWS_128
#undef REPRISE_GROUP_OWN_ROWS_16
#undef REPRISE_GROUP_OWN_ROWS_32
#undef REPRISE_GROUP_OWN_ROWS_64
#undef REPRISE_GROUP_OWN_ROWS_128
#undef REPRISE_GROUP_COLUMNS_128
#undef REPRISE_GROUP_COLUMNS_64
#undef REPRISE_GROUP_D8
#undef REPRISE_GROUP_D16
#undef REPRISE_GROUP_D32
#undef REPRISE_GROUP_D64
#undef REPRISE_GROUP_R8
#undef REPRISE_GROUP_R16
#undef REPRISE_GROUP_R32
#undef REPRISE_GROUP_R64

}  // namespace reprise::kernels::on_cuda

#endif  // REPRISE_KERNELS_DEVICE_CUDA_MATRIX_GROUP_H_
