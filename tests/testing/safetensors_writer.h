// SPDX-License-Identifier: Apache-2.0
// SafetensorsWriter: random tensors, and how the checkpoint of a tiny model (tiny_model.h) holds
// them: model.safetensors as bytes.
#ifndef REPRISE_TESTS_TESTING_SAFETENSORS_WRITER_H_
#define REPRISE_TESTS_TESTING_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/dtype.h"

namespace reprise::testing {

// Collects tensors in the order in which they are added; that order also decides their random
// numbers.
class SafetensorsWriter {
 public:
  SafetensorsWriter(runtime::DType dtype, uint64_t seed) : dtype_(dtype), random_(seed) {}

  // [out, in] with variance 1/in.
  void AddMatrix(std::string_view name, int64_t out, int64_t in);
  // `count` of them, one behind the other.
  void AddStack(std::string_view name, int64_t count, int64_t out, int64_t in);
  // As AddMatrix in E4M3, and a scale for each output behind it.
  void AddFp8Matrix(std::string_view name, int64_t out, int64_t in);
  // Of 4 bits: words, a scale and a zero point for each output and group of inputs, and the shape.
  // reordered: groups of 32 inputs, in turns, in place of one of all.
  void AddInt4Matrix(const std::string& layer, int64_t out, int64_t in, bool reordered);
  // `count` of them, one behind the other, in blocks of 32 inputs: elements of any bits, and scales
  // of four sizes. Elements have a variance of 8.6.
  void AddMxfp4Stack(const std::string& name, int64_t count, int64_t out, int64_t in);
  void AddEmbedding(std::string_view name, int64_t vocab, int64_t hidden);
  void AddNorm(std::string_view name, int64_t size, float mean) { Add(name, {size}, mean, 0.2f); }
  void AddBias(std::string_view name, int64_t size) { Add(name, {size}, 0.0f, 0.2f); }
  // [count, size].
  void AddBiases(std::string_view name, int64_t count, int64_t size);
  void AddNumbers(std::string_view name, const std::vector<int64_t>& shape, float mean,
                  float amplitude);
  void AddSinks(std::string_view name, int64_t size) { Add(name, {size}, 0.0f, 2.0f); }
  // A number, or a list of them; none: no tensor.
  void AddScales(std::string_view name, const std::vector<float>& scales);

  // u64 header length, JSON header padded with spaces to a multiple of 8, data.
  std::string Finish();

 private:
  // A counter-based generator (splitmix64), so that bytes do not depend on the standard library.
  class Random {
   public:
    explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull) {}

    // Uniform in [-1, 1).
    float Next() {
      state_ += 0x9e3779b97f4a7c15ull;
      uint64_t z = state_;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      z ^= z >> 31;
      return static_cast<float>(static_cast<double>(z >> 11) * 0x1p-52 - 1.0);
    }

   private:
    uint64_t state_;
  };

  void Add(std::string_view name, const std::vector<int64_t>& shape, float mean, float amplitude);
  int Digit() { return static_cast<int>(8.0f + 8.0f * random_.Next()); }
  // Of what was appended from `begin` on.
  void AddEntry(std::string_view name, runtime::DType dtype, const std::vector<int64_t>& shape,
                size_t begin);
  void AddEntry(std::string_view name, const char* dtype_name, const std::vector<int64_t>& shape,
                size_t begin);

  runtime::DType dtype_;
  Random random_;
  std::string header_;
  std::string data_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_SAFETENSORS_WRITER_H_
