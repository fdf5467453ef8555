// SPDX-License-Identifier: Apache-2.0
// WeightPlan: the weights of a model as its layers declare them: by what name each tensor is
// published, with what shape, and which pointer will hold its device address. Says where everything
// lies in one buffer before there is one; ModelWeights fills that buffer and binds the pointers.
//
//   plan.Norm(&norm_, "model.norm.weight", hidden_size);
//   plan.Linear(&qkv_, {{"self_attn.q_proj", q}, {"self_attn.k_proj", k}}, hidden_size, false);
//
// Threads: external ordering.
#ifndef REPRISE_MODELS_WEIGHTS_WEIGHT_PLAN_H_
#define REPRISE_MODELS_WEIGHTS_WEIGHT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/experts/expert_weights.h"
#include "kernels/linear/linear_weights.h"
#include "models/config/weight_quantization.h"
#include "models/weights/published_matrix.h"
#include "runtime/dtype.h"

namespace reprise::models {

// Every region begins at a multiple of this, which suits any vector load or bulk copy.
inline constexpr size_t kWeightAlignment = 256;  // bytes

enum class WeightKind : uint8_t { kMatrix, kNorm, kBias };

// What a kernel reads as one tensor: the rows of q, k and v together, for instance.
struct WeightRegion {
  WeightKind kind;
  kernels::WeightFormat format;
  // Of what is stored: the plan's, or kE4m3, or that for bytes of two elements of 4 bits.
  runtime::DType dtype;
  size_t offset;  // bytes
  int64_t count;  // of what is stored, with what fills it up
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;
  kernels::PackedLayout matrix = {};  // of packed ones, and of those whose slots are not plain
};

// One tensor of the checkpoint, and where its elements go: a region or a part of one.
struct WeightSlot {
  std::string name;
  std::vector<int64_t> shape;
  int64_t rows;   // of the region, whatever the shape is
  size_t region;  // of regions()
  // Bytes. Of the slots of a packed region, and of one of 4 bits, that region's, in the order of
  // their rows.
  size_t offset;
  // Of a tensor that several slots share, one for each of its first dimension: which one this is.
  std::optional<int64_t> stack_index = std::nullopt;
  // How the tensor, or that part of it, stores its matrix (published_matrix.h). Of kMxfp4 `shape`
  // is that of the blocks, and the scales are a tensor of their own.
  MatrixForm form = MatrixForm::kOutputs;
  bool alternates = false;
  HeadOrder heads = {};
  std::string scale_name = {};
};

// The scales of a region of E4M3 or of 4 bits, 32 bits each, behind all regions: for each output
// and some of its inputs, as kernels::PackedLayout says.
struct WeightScales {
  struct Part {
    std::string layer;  // "<layer>.<scale_name>" has them
    int64_t rows;       // outputs
    HeadOrder heads = {};
  };
  size_t offset = 0;  // bytes
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;
  kernels::PackedLayout matrix = {};
  std::vector<Part> parts = {};  // together all outputs; none of MXFP4
  // Of MXFP4: the tensor whose matrix of an expert has them.
  struct Blocks {
    std::string tensor;
    int64_t expert;
    bool alternates;
  };
  std::optional<Blocks> blocks = std::nullopt;
  // Bytes: where LinearWeights::input_order goes, of a quantization that reorders inputs; else 0.
  size_t order_offset = 0;

  // With those that fill it up.
  int64_t count() const {
    return kernels::IsPacked(layout) ? matrix.PackedScales()
                                     : matrix.out_features * matrix.ScaleGroups();
  }
  size_t end() const {  // of both, bytes
    return order_offset != 0
               ? order_offset + static_cast<size_t>(matrix.in_features) * sizeof(uint32_t)
               : offset + static_cast<size_t>(count()) * sizeof(float);
  }
};

// How one tensor stores the matrices of all experts, and what its names end in.
struct ExpertStack {
  // kOutputs: "<name>.weight"; kInputs: "<name>"; kMxfp4: "<name>_blocks" and "<name>_scales".
  MatrixForm form = MatrixForm::kOutputs;
  bool alternates = false;  // outputs of the two halves are stored in turns, those of a bias too
  bool biased = false;      // "<name>_bias" [experts, outputs]
};

// A tensor that a checkpoint may hold only as a copy of another one.
struct TiedTensor {
  std::string name;
  std::string copy_of;
};

class WeightPlan {
 public:
  // `dtype`: of every region, the compute dtype. `kv_dtype`: of the KV cache. `layout`: of linear
  // layers; packed: of 16 bits or fewer alone; packed pairs: packed, and pairs where they fit.
  // `quantization`: of Linear and PairedLinear where they are told so, and of Experts; unset: they
  // have `dtype`, too.
  // `architecture`: for messages.
  WeightPlan(runtime::DType dtype, runtime::DType kv_dtype, kernels::WeightLayout layout,
             std::optional<WeightQuantization> quantization, std::string architecture)
      : dtype_(dtype),
        kv_dtype_(kv_dtype),
        layout_(kernels::IsPacked(layout) ? kernels::WeightLayout::kPacked : layout),
        pairs_(layout == kernels::WeightLayout::kPackedPairs),
        quantization_(std::move(quantization)),
        architecture_(std::move(architecture)) {}

  // Each `out` must still be there when the plan is bound. Names are whole; of a Part
  // "<name>.weight" and, with biases, "<name>.bias".
  void Norm(const void** out, std::string name, int64_t size);
  // [rows, columns], of which a step reads single rows. tied: TiedLinear will name it, so it lies
  // as linear layers do, which `out` says.
  void Table(kernels::LinearWeights* out, std::string name, int64_t rows, int64_t columns,
             bool tied);
  // Published matrices of the same input, laid row block below row block.
  // heads: of matrices without biases alone.
  struct Part {
    std::string name;
    int64_t rows;
    HeadOrder heads = {};
  };
  // quantized: of `quantization`, where there is one; else of `dtype`, as what it leaves out.
  void Linear(kernels::LinearWeights* out, const std::vector<Part>& parts, int64_t in_features,
              bool biased, bool quantized = true);
  // Two parts of the same size, or one that is both, whose product kernels can take at once
  // (LinearArgs::silu_mul): in packed pairs where the plan says so and their sizes allow, which
  // `out` says; else as Linear.
  void PairedLinear(kernels::LinearWeights* out, const std::vector<Part>& parts,
                    int64_t in_features, bool biased, bool quantized = true);
  // As Linear that is not quantised.
  void PlainLinear(kernels::LinearWeights* out, const std::vector<Part>& parts, int64_t in_features,
                   bool biased = false);
  // The same linear layer of every expert, each of such parts as Linear or, `paired`, PairedLinear
  // takes. No step reads them all: elements_read and quantized_bytes_read do not count them.
  void Experts(kernels::ExpertWeights* out, const std::vector<std::vector<Part>>& experts,
               int64_t in_features, bool paired);
  // The same of one tensor for all of them, [num_experts, part.rows, in_features] but as `stack`
  // says; of `dtype`, without quantization.
  void StackedExperts(kernels::ExpertWeights* out, const Part& part, int64_t num_experts,
                      int64_t in_features, bool paired, const ExpertStack& stack = {});
  // A linear layer whose matrix is the Table named `table`, declared before, as tied.
  void TiedLinear(kernels::LinearWeights* out, std::string name, const std::string& table);
  // Numbers that follow from the config, f32 whatever the dtype; behind all regions.
  void Computed(const float** out, std::vector<float> values);
  // [size] factors, f32 whatever the dtype; behind all regions. Of a checkpoint that has a tensor
  // of one of the names they are its values: one for all, or one each. 1 where there is none.
  void Scales(const float** out, std::vector<std::string> names, int64_t size);
  // Numbers of a tensor of `shape` that the checkpoint must have, f32 whatever the dtype; behind
  // all regions. `random` where weights are random.
  void Numbers(const float** out, std::string name, std::vector<int64_t> shape,
               float random = 0.0f);
  // Tensors that a checkpoint may have and that nobody reads.
  void Unread(std::vector<std::string> names);
  // The checkpoint has a vision part beside what is declared, and names all so (text_part.h).
  void TakeTextPart() { takes_text_part_ = true; }

  // OK, or InvalidArgument: more parameters than can be addressed.
  const absl::Status& status() const { return status_; }
  runtime::DType dtype() const { return dtype_; }
  runtime::DType kv_dtype() const { return kv_dtype_; }
  const std::string& architecture() const { return architecture_; }
  // Of the buffer, exactly.
  size_t bytes() const;
  // In the order of declaration: ascending, disjoint.
  const std::vector<WeightRegion>& regions() const { return regions_; }
  const std::vector<WeightSlot>& slots() const { return slots_; }
  const std::vector<TiedTensor>& tied() const { return tied_; }
  const std::vector<std::string>& unread() const { return unread_; }
  bool takes_text_part() const { return takes_text_part_; }
  // Of all slots: the model's parameters.
  int64_t num_parameters() const { return num_parameters_; }
  // Of what a step reads whole, however many rows it has: everything but tables and experts, and a
  // tied matrix.
  // Elements of dtype(), and bytes of what is quantised, with its scales.
  int64_t elements_read() const { return elements_read_; }
  int64_t quantized_bytes_read() const { return quantized_bytes_read_; }

  // What is f32 whatever the dtype, and where it goes, bytes. names: of Scales and Numbers.
  struct ComputedValues {
    size_t offset;
    std::vector<float> values;
    std::vector<std::string> names;
    std::vector<int64_t> shape;  // of Numbers; empty of others
    bool required() const { return !shape.empty(); }
  };
  std::vector<ComputedValues> computed() const;
  // Of quantised regions, in their order; behind the computed values.
  std::vector<WeightScales> scales() const;
  const std::optional<WeightQuantization>& quantization() const { return quantization_; }

  // Sets every declared pointer. base: device address of bytes(), kWeightAlignment-aligned.
  void Bind(const std::byte* base) const;

 private:
  void AddLinear(kernels::LinearWeights* out, const std::vector<Part>& parts, int64_t in_features,
                 bool biased, kernels::WeightLayout layout, bool quantized);
  // The matrix of one expert, all of them declared one behind the other.
  void AddExpert(kernels::ExpertWeights* out, int64_t rows, int64_t in_features, bool paired,
                 kernels::WeightFormat format);
  void AddExpertBias(kernels::ExpertWeights* out, const Part& part, const ExpertStack& stack);
  // Of MXFP4, of the newest region, which is of the newest expert.
  void AddBlockScales(kernels::ExpertWeights* out, const std::string& tensor,
                      const ExpertStack& stack);
  kernels::WeightLayout LayoutOfPairs(int64_t rows, int64_t in_features, bool quantized) const;
  // Of the newest region, whose outputs are those of `parts`: their tensors; and their scales, of a
  // matrix of such a shape and layout. out: who is bound to these, or nullptr.
  void AddParts(const std::vector<Part>& parts, int64_t in_features);
  const WeightScales& AddScales(kernels::LinearWeights* out, const kernels::LinearWeights& shape,
                                const std::vector<Part>& parts);
  // layout: how it lies.
  size_t AddRegion(WeightKind kind, int64_t rows, int64_t columns, kernels::WeightLayout layout,
                   kernels::WeightFormat format);
  size_t AddVector(WeightKind kind, int64_t size) {
    return AddRegion(kind, size, 1, kernels::WeightLayout::kRowMajor, format());
  }
  kernels::WeightFormat format() const { return kernels::WeightFormatOf(dtype_); }
  // Of the newest region.
  void AddSlot(std::string name, std::vector<int64_t> shape, int64_t rows, size_t offset);
  void BindAt(const void** out, size_t offset);
  size_t EndOfComputed() const;  // bytes
  size_t Bytes(int64_t count) const { return static_cast<size_t>(count) * runtime::SizeOf(dtype_); }

  const runtime::DType dtype_, kv_dtype_;
  const kernels::WeightLayout layout_;
  const bool pairs_;
  const std::optional<WeightQuantization> quantization_;
  const std::string architecture_;
  absl::Status status_;
  std::vector<WeightRegion> regions_;
  std::vector<WeightSlot> slots_;
  std::vector<TiedTensor> tied_;
  std::vector<std::string> unread_;
  bool takes_text_part_ = false;
  std::vector<std::function<void(const std::byte*)>> bindings_;
  struct DeclaredValues {
    const float** out;
    std::vector<float> values;
    std::vector<std::string> names;
    std::vector<int64_t> shape = {};
  };
  std::vector<DeclaredValues> declared_values_;
  struct DeclaredScales {
    kernels::LinearWeights* out;  // or nullptr
    WeightScales scales;
  };
  std::vector<DeclaredScales> declared_scales_;
  size_t end_ = 0;  // of the regions
  int64_t num_parameters_ = 0;
  int64_t elements_read_ = 0;
  int64_t quantized_bytes_read_ = 0;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_WEIGHT_PLAN_H_
