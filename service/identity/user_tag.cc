// SPDX-License-Identifier: Apache-2.0
#include "service/identity/user_tag.h"

#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/security/auth_metadata_processor.h"

namespace reprise::service {
namespace {

constexpr char kProperty[] = "reprise_account";

// gRPC calls it for every call, of one connection on several threads at once; the first call's adds
// the property, and no call reads it before its own has seen it there.
class Tagger final : public grpc::AuthMetadataProcessor {
 public:
  explicit Tagger(size_t account) : account_(absl::StrCat(account)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& /*metadata*/, grpc::AuthContext* connection,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const std::lock_guard lock(mutex_);
    if (connection->FindPropertyValues(kProperty).empty()) {
      connection->AddProperty(kProperty, account_);
    }
    return grpc::Status::OK;
  }

 private:
  const std::string account_;
  std::mutex mutex_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> UserTag::CredentialsOf(size_t account) {
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::LocalServerCredentials(UDS);
  credentials->SetAuthMetadataProcessor(std::make_shared<Tagger>(account));
  return credentials;
}

std::optional<size_t> UserTag::Read(const grpc::AuthContext& connection) {
  const std::vector<grpc::string_ref> values = connection.FindPropertyValues(kProperty);
  size_t account = 0;
  if (values.size() != 1 ||
      !absl::SimpleAtoi(absl::string_view(values[0].data(), values[0].size()), &account)) {
    return std::nullopt;
  }
  return account;
}

}  // namespace reprise::service
