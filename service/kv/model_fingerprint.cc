// SPDX-License-Identifier: Apache-2.0
#include "service/kv/model_fingerprint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "models/config/model_spec.h"
#include "models/weights/checkpoint.h"
#include "models/weights/file_input.h"
#include "runtime/check.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"

namespace reprise::service {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;  // as models takes it
constexpr size_t kSampleBytes = 4096;
constexpr size_t kDigestBytes = 32;

// SHA-256 over fields, each behind its length, so that no two lists of fields are the same bytes.
class FieldDigest {
 public:
  FieldDigest() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    REPRISE_CHECK(context_ != nullptr &&
                  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Add(std::string_view field) {
    Number(field.size());
    Update(field.data(), field.size());
  }
  void Add(std::span<const std::byte> field) {
    Add(std::string_view(reinterpret_cast<const char*>(field.data()), field.size()));
  }
  void Number(uint64_t number) {
    unsigned char bytes[8];
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(number >> (8 * i));
    Update(bytes, sizeof(bytes));
  }
  std::string Take() {
    std::string digest(kDigestBytes, '\0');
    REPRISE_CHECK(EVP_DigestFinal_ex(context_.get(),
                                     reinterpret_cast<unsigned char*>(digest.data()),
                                     nullptr) == 1);
    return digest;
  }

 private:
  void Update(const void* data, size_t bytes) {
    REPRISE_CHECK(EVP_DigestUpdate(context_.get(), data, bytes) == 1);
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

void AddTensor(const models::TensorView& tensor, FieldDigest* digest) {
  digest->Add(runtime::NameOf(tensor.dtype));
  digest->Number(tensor.shape.size());
  for (const int64_t size : tensor.shape) digest->Number(static_cast<uint64_t>(size));
  const std::span<const std::byte> data = tensor.data;
  const size_t sample = std::min(kSampleBytes, data.size());
  digest->Add(data.first(sample));
  digest->Add(data.subspan((data.size() - sample) / 2, sample));
  digest->Add(data.last(sample));
}

// Of other ropes nothing, so that models without longrope keep their fingerprints.
absl::Status AddRope(const models::ModelSource& source, uint32_t max_context_length,
                     FieldDigest* digest) {
  REPRISE_ASSIGN_OR_RETURN(models::ModelSpec spec, models::ReadModelSpec(source));
  if (spec.rope.scaling != models::RopeScaling::kLongRope) return absl::OkStatus();
  if (max_context_length != 0) spec.rope.FitContexts(max_context_length);
  digest->Add(spec.rope.takes_long_factors ? "long factors" : "short factors");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ModelFingerprint(const models::ModelSource& source,
                                             uint32_t max_context_length) {
  FieldDigest digest;
  digest.Add("reprise-model 1");
  if (source.directory.empty()) {
    digest.Add(source.preset);
    digest.Number(source.random_seed);
    REPRISE_RETURN_IF_ERROR(AddRope(source, max_context_length, &digest));
    return digest.Take();
  }
  REPRISE_ASSIGN_OR_RETURN(const std::string config,
                           models::ReadFile(source.directory + "/config.json", kMaxConfigBytes));
  digest.Add(config);
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<models::Checkpoint> checkpoint,
                           models::Checkpoint::Open(source.directory));
  for (const std::string& name : checkpoint->Names()) {
    digest.Add(name);
    AddTensor(*checkpoint->Find(name), &digest);
  }
  REPRISE_RETURN_IF_ERROR(AddRope(source, max_context_length, &digest));
  return digest.Take();
}

}  // namespace reprise::service
