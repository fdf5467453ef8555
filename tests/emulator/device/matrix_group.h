// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup, emulated; the contract is in kernels/device/matrix_group.h. Every lane
// computes its own elements, in double, rounded once per 16 elements of the sums. What a product
// reads of shared memory is read when it is asked for, where a copy that was not waited for is
// found, and again when it is waited for, where the product is done: sums that are looked at too
// early are the old ones, and memory that is given away too early is a race.
#ifndef REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_GROUP_H_
#define REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_GROUP_H_

#include <cstring>

#include "kernels/device/matrix.h"
#include "tests/emulator/matrix_unit.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <int kRegisters>
void GiveRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

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
  void MultiplyRows(MatrixD<16> (&d)[kFragments], uint32_t a, uint32_t b, bool add) {
    Product product = Of<T>(d, b);
    product.a = a;
    product.by_rows = true;
    product.add = add;
    Ask(product);
  }
  template <typename T, int kFragments>
  void MultiplyColumns(MatrixD<16> (&d)[kFragments], const MatrixA& a, uint32_t b,
                       uint32_t panel_bytes) {
    Product product = Of<T>(d, b);
    product.panel_bytes = panel_bytes;
    product.add = true;
    // Rows Lane() / 4 and that + 8 of A lie in four lanes.
    const std::byte* all = emulator::Exchange(a.r, sizeof(a.r));
    for (int h = 0; h < 2; ++h)
      for (int k = 0; k < kDepth; ++k) {
        const int lane = Lane() / 4 * 4 + k % 8 / 2;
        std::memcpy(&product.rows[h][k],
                    all + static_cast<size_t>(lane) * emulator::kExchangeBytes +
                        static_cast<size_t>(2 * (h + k / 8 * 2) + k % 2) * 2,
                    2);
      }
    Ask(product);
  }

 private:
  static constexpr int kDepth = 16;
  // Products of two tiles of 128 tokens under way, of heads of 128.
  static constexpr int kMostProducts = 32;

  struct Product {
    MatrixD<16>* d;
    int fragments;
    int group;
    bool bf16, by_rows, add;
    uint32_t a, b;
    uint32_t panel_bytes;
    uint16_t rows[2][kDepth];
  };

  template <typename T, int kFragments>
  Product Of(MatrixD<16> (&d)[kFragments], uint32_t b) const {
    Product product{};
    product.d = d;
    product.fragments = kFragments;
    product.group = num_groups_;
    product.bf16 = kIsBf16<T>;
    product.b = b;
    return product;
  }
  // The warps of a group multiply 16 rows each.
  static int FirstRow() { return Warp() % 4 * 16; }

  // 16 bytes at a time, as they lie: chunk `chunk` of row `row` of the panel at `panel`.
  static Vec<uint16_t, 8> Chunk(uint32_t panel, int row, int chunk) {
    return LoadShared<Vec<uint16_t, 8>>(panel + static_cast<uint32_t>(row * 128) +
                                        static_cast<uint32_t>((chunk ^ (row % 8)) * 16));
  }
  // 16 elements of row `row` from `address` on, the panel plus 32 bytes for each 16.
  static void LoadRow(uint32_t address, int row, uint16_t (&to)[kDepth]) {
    const uint32_t panel = address / 1024 * 1024;
    const int first = static_cast<int>(address % 128 / 16);
    for (int half = 0; half < 2; ++half) {
      const Vec<uint16_t, 8> x = Chunk(panel, row, first + half);
      std::memcpy(to + 8 * half, x.v, sizeof(x.v));
    }
  }

  void Ask(const Product& product) {
    if (num_products_ == kMostProducts) __builtin_trap();
    products_[num_products_++] = product;
    Product copy = product;
    uint16_t columns[128][kDepth];
    Read(copy, columns);
  }

  // What the lane's elements are made of: two rows of A, all columns of B.
  static void Read(Product& product, uint16_t (&columns)[128][kDepth]) {
    const int n = product.fragments * 16;
    if (product.by_rows) {
      for (int h = 0; h < 2; ++h)
        LoadRow(product.a, FirstRow() + Lane() / 4 + 8 * h, product.rows[h]);
      for (int j = 0; j < n; ++j)
        if (j % 8 / 2 == Lane() % 4) LoadRow(product.b, j, columns[j]);
      return;
    }
    for (int k = 0; k < kDepth; ++k)
      for (int chunk = 0; chunk < n / 8; ++chunk) {
        const Vec<uint16_t, 8> x =
            Chunk(product.b + static_cast<uint32_t>(chunk / 8) * product.panel_bytes, k, chunk % 8);
        for (int e = 0; e < 2; ++e)
          columns[chunk * 8 + Lane() % 4 * 2 + e][k] = x.v[Lane() % 4 * 2 + e];
      }
  }

  static void Finish(Product& product) {
    uint16_t columns[128][kDepth];
    Read(product, columns);
    for (int n = 0; n < product.fragments * 2; ++n)
      for (int e = 0; e < 4; ++e) {
        float& d = product.d[n / 2].v[n % 2 * 4 + e];
        if (!product.add) d = 0.0f;
        d = emulator::DotProduct(product.bf16, d, product.rows[e / 2],
                                 columns[n * 8 + Lane() % 4 * 2 + e % 2]);
      }
  }

  Product products_[kMostProducts];
  int num_products_ = 0, num_groups_ = 0;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_GROUP_H_
