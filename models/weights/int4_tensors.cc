// SPDX-License-Identifier: Apache-2.0
#include "models/weights/int4_tensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/packed_layout.h"
#include "models/weights/byte_vectors.h"
#include "models/weights/safetensors.h"
#include "runtime/float_convert.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr int64_t kOfWord = 8;
constexpr uint32_t kMiddle = 8;  // the zero point of what is symmetric
// Of eight neighbours, the place of each in a word.
constexpr int kInOrder[kOfWord] = {0, 1, 2, 3, 4, 5, 6, 7};
constexpr int kAwqOrder[kOfWord] = {0, 4, 1, 5, 2, 6, 3, 7};

const int* OrderOf(WeightStorage storage) {
  return storage == WeightStorage::kAwq ? kAwqOrder : kInOrder;
}

uint32_t WordAt(std::span<const std::byte> words, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, words.data() + index * 4, sizeof(word));
  return word;
}
uint32_t FourBits(uint32_t word, int place) { return word >> (4 * place) & 15u; }

// The four bits of each place as a byte, in order.
uint64_t SpreadWord(uint32_t word) {
  uint64_t spread = word;
  spread = (spread | spread << 16) & 0x0000ffff0000ffffu;
  spread = (spread | spread << 8) & 0x00ff00ff00ff00ffu;
  return (spread | spread << 4) & 0x0f0f0f0f0f0f0f0fu;
}

// Byte j of words[i] becomes byte i of words[j].
void TransposeBytes(uint64_t (&words)[kOfWord]) {
  U16x8 twos[kOfWord / 2];  // bytes of two words side by side, then of four, and of all
  for (int i = 0; i < kOfWord / 2; ++i)
    twos[i] = reinterpret_cast<U16x8>(Interleave(words[2 * i], words[2 * i + 1]));
  U32x4 fours[2][2];  // [words 0 to 3 or 4 to 7][bytes 0 to 3 or 4 to 7]
  for (int i = 0; i < 2; ++i) {
    fours[i][0] = reinterpret_cast<U32x4>(InterleaveLower(twos[2 * i], twos[2 * i + 1]));
    fours[i][1] = reinterpret_cast<U32x4>(InterleaveUpper(twos[2 * i], twos[2 * i + 1]));
  }
  for (int i = 0; i < 2; ++i) {
    const U32x4 all[2] = {InterleaveLower(fours[0][i], fours[1][i]),
                          InterleaveUpper(fours[0][i], fours[1][i])};
    std::memcpy(&words[4 * i], all, sizeof(all));
  }
}

// Of words of eight inputs, how many lie between those of one output and the next, and between
// eight inputs and the next.
struct WordSteps {
  int64_t of_output, of_inputs;
};
WordSteps StepsOf(WeightStorage storage, const Int4Inputs& from) {
  if (storage == WeightStorage::kGptq) return {1, from.outputs};
  return {(from.inputs + kOfWord - 1) / kOfWord, 1};
}

// Of a layer, the group of each input.
const char* OrderTensor(WeightStorage storage) {
  return storage == WeightStorage::kPackedInt4 ? "weight_g_idx" : "g_idx";
}

// Elements of inputs in another order: of one output, or of several, one behind the other.
void ReadReordered(WeightStorage storage, const Int4Inputs& from, int64_t output, int64_t outputs,
                   uint8_t* to, int64_t stride) {
  const WordSteps steps = StepsOf(storage, from);
  for (int64_t i = 0; i < from.count; ++i) {
    const int64_t input = from.order[static_cast<size_t>(from.first + i)];
    const int64_t at = output * steps.of_output + input / kOfWord * steps.of_inputs;
    for (int64_t k = 0; k < outputs; ++k)
      to[k * stride + i] = static_cast<uint8_t>(FourBits(
          WordAt(from.words, at + k * steps.of_output), static_cast<int>(input % kOfWord)));
  }
}

int64_t Words(int64_t count) { return (count + kOfWord - 1) / kOfWord; }

// One layer's tensors.
class Reader {
 public:
  Reader(const Checkpoint& checkpoint, const WeightQuantization& quantization,
         const std::string& layer, int64_t outputs, int64_t inputs)
      : checkpoint_(checkpoint),
        quantization_(quantization),
        layer_(layer),
        outputs_(outputs),
        inputs_(inputs),
        groups_(quantization.group_size == 0 ? 1 : inputs / quantization.group_size),
        by_output_(quantization.storage == WeightStorage::kPackedInt4) {}

  absl::StatusOr<std::vector<float>> Read() {
    REPRISE_RETURN_IF_ERROR(CheckSizes());
    REPRISE_ASSIGN_OR_RETURN(const std::vector<float> scales, Scales());
    REPRISE_ASSIGN_OR_RETURN(const std::vector<uint8_t> zeros, ZeroPoints());
    REPRISE_RETURN_IF_ERROR(CheckGroups());
    REPRISE_RETURN_IF_ERROR(CheckShape());
    const kernels::PackedLayout layout{outputs_, inputs_, quantization_.scale_inputs()};
    std::vector<float> words(static_cast<size_t>(outputs_ * layout.ScaleGroups()));
    for (int64_t output = 0; output < outputs_; ++output) {
      for (int64_t i = 0; i < layout.ScaleGroups(); ++i) {
        const int64_t group = groups_ == 1 ? 0 : i;
        if (group >= groups_) continue;  // of inputs that fill up
        const auto from = static_cast<size_t>(output * groups_ + group);
        words[static_cast<size_t>(output * layout.ScaleGroups() + i)] =
            std::bit_cast<float>(kernels::ScaleWord(scales[from], zeros[from]));
      }
    }
    return words;
  }

  absl::StatusOr<std::vector<uint32_t>> ReadOrder() {
    REPRISE_RETURN_IF_ERROR(CheckSizes());
    const char* const tensor = OrderTensor(quantization_.storage);
    std::vector<uint32_t> order(static_cast<size_t>(inputs_));
    // compressed-tensors leaves out those of layers whose groups it has not set so.
    if (by_output_ && checkpoint_.Find(Name(tensor)) == nullptr) {
      std::iota(order.begin(), order.end(), 0u);
      return order;
    }
    REPRISE_ASSIGN_OR_RETURN(const TensorView* const view, Find(tensor, {{inputs_}}, 4));
    const int64_t of_group = inputs_ / groups_;
    std::vector<int64_t> found(static_cast<size_t>(groups_));
    for (int64_t input = 0; input < inputs_; ++input) {
      const auto group = static_cast<int32_t>(WordAt(view->data, input));
      if (group < 0 || group >= groups_)
        return Refuse(tensor, absl::StrCat("group ", group, " of input ", input),
                      absl::StrCat("0 to ", groups_ - 1));
      int64_t& place = found[static_cast<size_t>(group)];
      if (place == of_group)
        return Refuse(tensor, absl::StrCat("input ", input, " as another of group ", group),
                      absl::StrCat(of_group, " inputs in each group"));
      order[static_cast<size_t>(group * of_group + place++)] = static_cast<uint32_t>(input);
    }
    return order;
  }

 private:
  std::string Name(const std::string& tensor) const { return absl::StrCat(layer_, ".", tensor); }
  absl::Status Refuse(const std::string& tensor, const std::string& got,
                      const std::string& allowed) const {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", Name(tensor), "': got ", got, ", allowed ", allowed));
  }

  absl::Status CheckSizes() const {
    const char* const tensor = Int4TensorName(quantization_.storage);
    if (inputs_ % kOfWord != 0)
      return Refuse(tensor, absl::StrCat(inputs_, " inputs"), "a multiple of 8");
    if (!by_output_ && outputs_ % kOfWord != 0)
      return Refuse(tensor, absl::StrCat(outputs_, " outputs"), "a multiple of 8");
    if (quantization_.group_size != 0 && inputs_ % quantization_.group_size != 0)
      return Refuse(tensor, absl::StrCat(inputs_, " inputs"),
                    absl::StrCat("a multiple of the group size, ", quantization_.group_size));
    return absl::OkStatus();
  }

  // integers: floats of 16 or 32 bits where 0, else integers of so many bytes.
  absl::StatusOr<const TensorView*> Find(const std::string& tensor,
                                         const std::vector<std::vector<int64_t>>& shapes,
                                         int integer_bytes) const {
    const TensorView* const view = checkpoint_.Find(Name(tensor));
    std::string allowed;
    for (const auto& shape : shapes)
      absl::StrAppend(&allowed, allowed.empty() ? "" : " and ", ShowShape(shape));
    if (view == nullptr)
      return absl::NotFoundError(
          absl::StrCat("tensor '", Name(tensor), "': missing, wanted with shape ", allowed));
    if (std::find(shapes.begin(), shapes.end(), view->shape) == shapes.end())
      return Refuse(tensor, absl::StrCat("shape ", ShowShape(view->shape)), allowed);
    const bool known = integer_bytes == 0 ? view->is_float() && !runtime::IsFp8(view->dtype)
                                          : view->integer_bytes == integer_bytes;
    if (!known)
      return Refuse(
          tensor, absl::StrCat("dtype ", ElementName(*view)),
          integer_bytes == 0 ? "f32, bf16 and f16" : absl::StrCat("i", 8 * integer_bytes));
    return view;
  }

  // [outputs, groups].
  absl::StatusOr<std::vector<float>> Scales() const {
    std::vector<std::vector<int64_t>> shapes = {by_output_
                                                    ? std::vector<int64_t>{outputs_, groups_}
                                                    : std::vector<int64_t>{groups_, outputs_}};
    if (by_output_ && quantization_.group_size == 0) shapes.push_back({outputs_});
    REPRISE_ASSIGN_OR_RETURN(const TensorView* const view,
                             Find(quantization_.scale_name, shapes, 0));
    std::vector<float> read(static_cast<size_t>(outputs_ * groups_));
    runtime::ConvertElements(view->dtype, runtime::DType::kF32, view->data.data(),
                             reinterpret_cast<std::byte*>(read.data()), read.size());
    for (const float scale : read) {
      if (!std::isfinite(scale) || scale < 0.0f)
        return Refuse(quantization_.scale_name, absl::StrCat("scale ", scale),
                      "finite numbers of at least 0");
    }
    if (by_output_) return read;
    std::vector<float> scales(read.size());
    for (int64_t group = 0; group < groups_; ++group)
      for (int64_t output = 0; output < outputs_; ++output)
        scales[static_cast<size_t>(output * groups_ + group)] =
            read[static_cast<size_t>(group * outputs_ + output)];
    return scales;
  }

  // [outputs, groups].
  absl::StatusOr<std::vector<uint8_t>> ZeroPoints() const {
    std::vector<uint8_t> zeros(static_cast<size_t>(outputs_ * groups_), kMiddle);
    if (by_output_ && quantization_.symmetric) return zeros;
    const std::string tensor = by_output_ ? "weight_zero_point" : "qzeros";
    const int64_t words = Words(outputs_);
    REPRISE_ASSIGN_OR_RETURN(const TensorView* const view,
                             Find(tensor,
                                  {by_output_ ? std::vector<int64_t>{words, groups_}
                                              : std::vector<int64_t>{groups_, words}},
                                  4));
    for (int64_t output = 0; output < outputs_; ++output) {
      for (int64_t group = 0; group < groups_; ++group) {
        const int64_t index =
            by_output_ ? output / kOfWord * groups_ + group : group * words + output / kOfWord;
        const int place = OrderOf(quantization_.storage)[output % kOfWord];
        const uint32_t zero = FourBits(WordAt(view->data, index), place) +
                              static_cast<uint32_t>(quantization_.zero_point_offset);
        if (zero > 15)
          return Refuse(tensor, "a zero point of 16",
                        "0 to 15: programs do not agree about what lies beyond");
        if (quantization_.symmetric && zero != kMiddle)
          return Refuse(tensor, absl::StrCat("a zero point of ", zero),
                        absl::StrCat(kMiddle, ", as the config says that weights are symmetric"));
        zeros[static_cast<size_t>(output * groups_ + group)] = static_cast<uint8_t>(zero);
      }
    }
    return zeros;
  }

  // Groups are of neighbouring inputs.
  absl::Status CheckGroups() const {
    if (quantization_.reorders_inputs || quantization_.storage != WeightStorage::kGptq ||
        checkpoint_.Find(Name("g_idx")) == nullptr)
      return absl::OkStatus();
    REPRISE_ASSIGN_OR_RETURN(const TensorView* const view, Find("g_idx", {{inputs_}}, 4));
    for (int64_t input = 0; input < inputs_; ++input) {
      const auto group = static_cast<int32_t>(WordAt(view->data, input));
      const int64_t wanted = quantization_.group_size == 0 ? 0 : input / quantization_.group_size;
      if (group != wanted)
        return Refuse("g_idx", absl::StrCat("group ", group, " of input ", input),
                      absl::StrCat(wanted, ": groups are of neighbouring inputs"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckShape() const {
    if (!by_output_) return absl::OkStatus();
    const TensorView* const words = checkpoint_.Find(Name("weight_shape"));
    const int bytes = words != nullptr && words->integer_bytes == 4 ? 4 : 8;
    REPRISE_ASSIGN_OR_RETURN(const TensorView* const view, Find("weight_shape", {{2}}, bytes));
    std::vector<int64_t> shape(2);
    for (size_t i = 0; i < 2; ++i) {
      int32_t narrow = 0;
      const std::byte* const from = view->data.data() + i * static_cast<size_t>(bytes);
      if (bytes == 8) {
        std::memcpy(&shape[i], from, sizeof(shape[i]));
      } else {
        std::memcpy(&narrow, from, sizeof(narrow));
        shape[i] = narrow;
      }
    }
    const std::vector<int64_t> wanted = {outputs_, inputs_};
    return shape == wanted ? absl::OkStatus()
                           : Refuse("weight_shape", ShowShape(shape), ShowShape(wanted));
  }

  const Checkpoint& checkpoint_;
  const WeightQuantization& quantization_;
  const std::string& layer_;
  const int64_t outputs_, inputs_, groups_;
  const bool by_output_;  // tensors are of outputs first
};

}  // namespace

const char* Int4TensorName(WeightStorage storage) {
  return storage == WeightStorage::kPackedInt4 ? "weight_packed" : "qweight";
}

std::vector<int64_t> Int4TensorShape(WeightStorage storage, int64_t outputs, int64_t inputs) {
  switch (storage) {
    case WeightStorage::kE4m3:
      break;  // of 8 bits
    case WeightStorage::kGptq:
      return {Words(inputs), outputs};
    case WeightStorage::kAwq:
      return {inputs, Words(outputs)};
    case WeightStorage::kPackedInt4:
      return {outputs, Words(inputs)};
  }
  return {};
}

std::vector<std::string> Int4TensorsBeside(const WeightQuantization& quantization,
                                           const std::string& layer) {
  if (quantization.storage == WeightStorage::kGptq) return {layer + ".qzeros", layer + ".g_idx"};
  if (quantization.storage == WeightStorage::kAwq) return {layer + ".qzeros"};
  std::vector<std::string> names = {layer + ".weight_shape"};
  if (!quantization.symmetric) names.push_back(layer + ".weight_zero_point");
  if (quantization.reorders_inputs) names.push_back(Int4OrderName(quantization.storage, layer));
  return names;
}

void ReadInt4Output(WeightStorage storage, const Int4Inputs& from, int64_t output, uint8_t* to) {
  if (!from.order.empty()) return ReadReordered(storage, from, output, 1, to, 0);
  const int64_t end = from.first + from.count;
  if (storage == WeightStorage::kAwq) {
    const int64_t across = Words(from.outputs);
    const int place = kAwqOrder[output % kOfWord];
    for (int64_t i = from.first; i < end; ++i)
      *to++ =
          static_cast<uint8_t>(FourBits(WordAt(from.words, i * across + output / kOfWord), place));
    return;
  }
  const WordSteps steps = StepsOf(storage, from);
  for (int64_t i = from.first; i < end; i += kOfWord, to += kOfWord) {
    const int64_t at = output * steps.of_output + i / kOfWord * steps.of_inputs;
    const uint64_t elements = SpreadWord(WordAt(from.words, at));
    std::memcpy(to, &elements, kOfWord);
  }
}

void ReadInt4Outputs(WeightStorage storage, const Int4Inputs& from, int64_t output, uint8_t* to,
                     int64_t stride) {
  if (!from.order.empty()) return ReadReordered(storage, from, output, kOfWord, to, stride);
  const int* const order = OrderOf(storage);
  const bool awq = storage == WeightStorage::kAwq;
  const WordSteps steps = StepsOf(storage, from);
  for (int64_t i = from.first; i < from.first + from.count; i += kOfWord, to += kOfWord) {
    uint64_t elements[kOfWord];
    for (int64_t k = 0; k < kOfWord; ++k) {
      const int64_t at = awq ? (i + k) * Words(from.outputs) + output / kOfWord
                             : (output + k) * steps.of_output + i / kOfWord * steps.of_inputs;
      elements[k] = SpreadWord(WordAt(from.words, at));
    }
    if (awq) TransposeBytes(elements);
    for (int64_t k = 0; k < kOfWord; ++k)
      std::memcpy(to + k * stride, &elements[order[k]], kOfWord);
  }
}

absl::StatusOr<std::vector<float>> ReadInt4Scales(const Checkpoint& checkpoint,
                                                  const WeightQuantization& quantization,
                                                  const std::string& layer, int64_t outputs,
                                                  int64_t inputs) {
  return Reader(checkpoint, quantization, layer, outputs, inputs).Read();
}

absl::StatusOr<std::vector<uint32_t>> ReadInt4Order(const Checkpoint& checkpoint,
                                                    const WeightQuantization& quantization,
                                                    const std::string& layer, int64_t inputs) {
  return Reader(checkpoint, quantization, layer, 0, inputs).ReadOrder();
}

std::string Int4OrderName(WeightStorage storage, const std::string& layer) {
  return absl::StrCat(layer, ".", OrderTensor(storage));
}

}  // namespace reprise::models
