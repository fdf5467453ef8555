// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup, emulated; the contract is in kernels/device/matrix_group.h. Every lane
// computes its own elements, in double, rounded once per 16 elements of the sums. What a product
// reads of shared memory is read when it is asked for, where a copy that was not waited for is
// found, and again when it is waited for, where the product is done: sums that are looked at too
// early are the old ones, and memory that is given away too early is a race.
#ifndef REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_GROUP_H_
#define REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_GROUP_H_

#include "kernels/device/fp8.h"
#include "kernels/device/matrix.h"
#include "runtime/tile_map.h"
#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/matrix_unit.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <int kRegisters>
void GiveRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

template <int kRank>
REPRISE_FN void CopyTile(void* to, const runtime::TileMap& map, const int32_t (&at)[kRank],
                         uint64_t* barrier) {
  emulator::CopyTile(to, map, at, kRank, barrier);
}
template <int kRank>
REPRISE_FN void CopyTileOnce(void* to, const runtime::TileMap& map, const int32_t (&at)[kRank],
                             uint64_t* barrier) {
  emulator::CopyTile(to, map, at, kRank, barrier);
}

REPRISE_FN void SyncCluster() { emulator::SyncCluster(); }
REPRISE_FN uint32_t PeerAddress(uint32_t address, int block) {
  return emulator::PeerAddress(address, block);
}
REPRISE_FN void StoreAtPeer(uint32_t at_peer, const Vec<float, 4>& x, uint32_t barrier_at_peer) {
  const Vec<float, 4> value = x;  // a read by the kernel, wherever it lies
  emulator::StoreAtPeer(at_peer, &value, barrier_at_peer);
}
REPRISE_FN void FinishSharedReads() { emulator::FinishSharedReads(); }
REPRISE_FN void BarrierArriveAtPeer(uint32_t barrier_at_peer) {
  emulator::BarrierArriveAtPeer(barrier_at_peer);
}
REPRISE_FN void BarrierWaitForPeers(uint64_t* barrier, uint32_t phase) {
  emulator::BarrierWaitForPeers(barrier, phase);
}

class GroupProducts {
 public:
  void Begin() const {}
  void Commit() { ++num_groups_; }
  template <int kPending, int kFragments>
  void Wait(MatrixD<16> (&)[kFragments]) {
    SyncWarp();
    int done = 0;
    for (; done < num_products_ && products_[done].group + kPending < num_groups_; ++done)
      Finish(products_[done]);
    for (int i = done; i < num_products_; ++i) products_[i - done] = products_[i];
    num_products_ -= done;
  }

  template <typename T, int kFragments>
  void MultiplyRows(MatrixD<16> (&d)[kFragments], uint32_t a, uint32_t b, int k, bool add) {
    Product& product = Ask<T>(d, b + StepBytes(k));
    product.a = a + StepBytes(k);
    product.operands.by_rows = true;
    product.operands.a_in_registers = false;
    product.operands.add = add;
    Touch(product);
  }
  template <typename T, int kFragments>
  void MultiplyRows(MatrixD<16> (&d)[kFragments], const MatrixA& a, uint32_t b, int k, bool add) {
    Product& product = Ask<T>(d, b + StepBytes(k));
    product.operands.by_rows = true;
    product.operands.add = add;
    TakeA(a, product);
    Touch(product);
  }
  template <typename T, int kFragments>
  void MultiplyColumns(MatrixD<16> (&d)[kFragments], const MatrixA& a, uint32_t b,
                       uint32_t panel_bytes) {
    Product& product = Ask<T>(d, b);
    product.operands.by_rows = false;
    product.operands.add = true;
    product.operands.panel_bytes = panel_bytes;
    TakeA(a, product);
    Touch(product);
  }

 private:
  // Of linear: two stages of four chunks each.
  static constexpr int kMostProducts = 32;

  struct Product {
    int group;
    float* d;
    uint32_t a, b;
    emulator::GroupOperands operands;
  };

  template <typename T, int kFragments>
  Product& Ask(MatrixD<16> (&d)[kFragments], uint32_t b) {
    static_assert(sizeof(d) == kFragments * 8 * sizeof(float));
    if (num_products_ == kMostProducts) __builtin_trap();
    Product& product = products_[num_products_++];
    product.group = num_groups_;
    product.d = d[0].v;
    product.b = b;
    product.operands.element = std::is_same_v<T, E4m3> ? emulator::GroupElement::kE4m3
                               : kIsBf16<T>            ? emulator::GroupElement::kBf16
                                                       : emulator::GroupElement::kF16;
    product.operands.columns = kFragments * 16;
    return product;
  }

  static uint32_t StepBytes(int k) { return static_cast<uint32_t>(32 * k); }
  static void TakeA(const MatrixA& a, Product& product) {
    product.operands.a_in_registers = true;
    emulator::TakeRowsOfA(emulator::Exchange(a.r, sizeof(a.r)), Lane(), product.operands);
  }
  static void TouchChunk(uint32_t address) {
    [[maybe_unused]] const volatile uint64_t x = LoadShared<uint64_t>(address);
    [[maybe_unused]] const volatile uint64_t y = LoadShared<uint64_t>(address + 8);
  }
  // The lanes of a warp share out what it reads.
  static void Touch(const Product& product) {
    const uint32_t lane = static_cast<uint32_t>(Lane());
    const uint32_t columns = static_cast<uint32_t>(product.operands.columns);
    if (!product.operands.by_rows) {
      for (uint32_t i = lane; i < 2 * columns; i += kWarpSize)
        TouchChunk(product.b + i / 128 * product.operands.panel_bytes + i % 128 * 16);
      return;
    }
    for (uint32_t i = lane; i < 2 * columns; i += kWarpSize) TouchRow(product.b, i / 2, i % 2);
    if (product.operands.a_in_registers) return;
    TouchRow(product.a, static_cast<uint32_t>(Warp() % kGroupWarps * 16) + lane / 2, lane % 2);
  }
  static void TouchRow(uint32_t operand, uint32_t row, uint32_t chunk) {
    const uint32_t at = operand % 128 / 16 + chunk;
    TouchChunk(operand / 1024 * 1024 + row * 128 + (at ^ (row % 8)) * 16);
  }

  static void Finish(Product& product) {
    Touch(product);
    emulator::GroupOperands& operands = product.operands;
    operands.b = emulator::SharedPointer(product.b / 1024 * 1024);
    operands.b_chunk = static_cast<int>(product.b % 128 / 16);
    if (!operands.a_in_registers) {
      operands.a =
          emulator::SharedPointer(product.a / 1024 * 1024) + Warp() % kGroupWarps * 16 * 128;
      operands.a_chunk = static_cast<int>(product.a % 128 / 16);
    }
    emulator::MultiplyGroup(operands, Lane(), product.d);
  }

  Product products_[kMostProducts];
  int num_products_ = 0, num_groups_ = 0;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_GROUP_H_
