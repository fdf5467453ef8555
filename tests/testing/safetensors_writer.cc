// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/safetensors_writer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/float_convert.h"

namespace reprise::testing {
namespace {

using runtime::DType;

void AppendElement(std::string& out, DType dtype, float value) {
  if (dtype == DType::kE4m3) {
    out.push_back(static_cast<char>(runtime::FloatToE4m3(value)));
    return;
  }
  if (dtype == DType::kF32) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return;
  }
  const uint16_t bits =
      dtype == DType::kBf16 ? runtime::FloatToBf16(value) : runtime::FloatToF16(value);
  out.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
}

}  // namespace

void SafetensorsWriter::AddMatrix(std::string_view name, int64_t out, int64_t in) {
  Add(name, {out, in}, 0.0f, std::sqrt(3.0f / static_cast<float>(in)));
}

void SafetensorsWriter::AddStack(std::string_view name, int64_t count, int64_t out, int64_t in) {
  Add(name, {count, out, in}, 0.0f, std::sqrt(3.0f / static_cast<float>(in)));
}

void SafetensorsWriter::AddFp8Matrix(std::string_view name, int64_t out, int64_t in) {
  const float amplitude = std::sqrt(3.0f / static_cast<float>(in));
  const size_t elements = data_.size();
  for (int64_t i = 0; i < out * in; ++i)
    AppendElement(data_, DType::kE4m3, 400.0f * random_.Next());
  AddEntry(name, DType::kE4m3, {out, in}, elements);
  const size_t scales = data_.size();
  // Of several sizes: a wrong one would show.
  for (int64_t i = 0; i < out; ++i)
    AppendElement(data_, DType::kF32, amplitude / 400.0f * (1.0f + 0.5f * random_.Next()));
  AddEntry(std::string(name) + "_scale", DType::kF32, {out, 1}, scales);
}

void SafetensorsWriter::AddInt4Matrix(const std::string& layer, int64_t out, int64_t in,
                                      bool reordered) {
  const int64_t groups = reordered ? in / 32 : 1;
  const auto words = [&](int64_t rows, int64_t columns) {  // of any bits
    const size_t begin = data_.size();
    for (int64_t byte = 0; byte < rows * columns * 4; ++byte) {
      const int low = Digit(), high = Digit();
      data_.push_back(static_cast<char>(low | high << 4));
    }
    return begin;
  };
  AddEntry(layer + ".weight_packed", "I32", {out, in / 8}, words(out, in / 8));
  const size_t scales = data_.size();
  // Elements less zero points have a variance of 42.
  const float deviation = std::sqrt(1.0f / 42.0f / static_cast<float>(in));
  for (int64_t i = 0; i < out * groups; ++i)
    AppendElement(data_, DType::kBf16, deviation * (1.0f + 0.5f * random_.Next()));
  AddEntry(layer + ".weight_scale", "BF16", {out, groups}, scales);
  AddEntry(layer + ".weight_zero_point", "I32", {(out + 7) / 8, groups},
           words((out + 7) / 8, groups));
  if (reordered) {
    const size_t order = data_.size();
    for (int64_t i = 0; i < in; ++i) {
      const auto group = static_cast<int32_t>(i % groups);
      data_.append(reinterpret_cast<const char*>(&group), sizeof(group));
    }
    AddEntry(layer + ".weight_g_idx", "I32", {in}, order);
  }
  const size_t shape = data_.size();
  for (const int64_t size : {out, in})
    data_.append(reinterpret_cast<const char*>(&size), sizeof(size));
  AddEntry(layer + ".weight_shape", "I64", {2}, shape);
}

void SafetensorsWriter::AddMxfp4Stack(const std::string& name, int64_t count, int64_t out,
                                      int64_t in) {
  const size_t blocks = data_.size();
  for (int64_t byte = 0; byte < count * out * in / 2; ++byte) {
    const int low = Digit(), high = Digit();
    data_.push_back(static_cast<char>(low | high << 4));
  }
  AddEntry(name + "_blocks", "U8", {count, out, in / 32, 16}, blocks);
  const size_t scales = data_.size();
  const int middle =
      127 +
      static_cast<int>(std::lround(std::log2(std::sqrt(1.0 / 8.6 / static_cast<double>(in)))));
  for (int64_t block = 0; block < count * out * in / 32; ++block)
    data_.push_back(static_cast<char>(middle - 2 + Digit() / 4));
  AddEntry(name + "_scales", "U8", {count, out, in / 32}, scales);
}

void SafetensorsWriter::AddEmbedding(std::string_view name, int64_t vocab, int64_t hidden) {
  Add(name, {vocab, hidden}, 0.0f, std::sqrt(3.0f));
}

void SafetensorsWriter::AddBiases(std::string_view name, int64_t count, int64_t size) {
  Add(name, {count, size}, 0.0f, 0.2f);
}

void SafetensorsWriter::AddNumbers(std::string_view name, const std::vector<int64_t>& shape,
                                   float mean, float amplitude) {
  Add(name, shape, mean, amplitude);
}

void SafetensorsWriter::AddScales(std::string_view name, const std::vector<float>& scales) {
  if (scales.empty()) return;
  const size_t begin = data_.size();
  for (const float scale : scales) AppendElement(data_, dtype_, scale);
  std::vector<int64_t> shape;
  if (scales.size() > 1) shape.push_back(static_cast<int64_t>(scales.size()));
  AddEntry(name, dtype_, shape, begin);
}

std::string SafetensorsWriter::Finish() {
  std::string header = absl::StrCat("{", header_, "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header;
  file += data_;
  return file;
}

void SafetensorsWriter::Add(std::string_view name, const std::vector<int64_t>& shape, float mean,
                            float amplitude) {
  const size_t begin = data_.size();
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    AppendElement(data_, dtype_, mean + amplitude * random_.Next());
  }
  AddEntry(name, dtype_, shape, begin);
}

void SafetensorsWriter::AddEntry(std::string_view name, DType dtype,
                                 const std::vector<int64_t>& shape, size_t begin) {
  AddEntry(name,
           dtype == DType::kF32    ? "F32"
           : dtype == DType::kBf16 ? "BF16"
           : dtype == DType::kF16  ? "F16"
                                   : "F8_E4M3",
           shape, begin);
}

void SafetensorsWriter::AddEntry(std::string_view name, const char* dtype_name,
                                 const std::vector<int64_t>& shape, size_t begin) {
  absl::StrAppend(&header_, header_.empty() ? "" : ",", "\"",
                  absl::string_view(name.data(), name.size()), "\":{\"dtype\":\"", dtype_name,
                  "\",\"shape\":[", absl::StrJoin(shape, ","), "],\"data_offsets\":[", begin, ",",
                  data_.size(), "]}");
}

}  // namespace reprise::testing
