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

constexpr char kProperty[] = "reprise_user";

}  // namespace

// gRPC calls it for every call, of one connection on several threads at once; the first call's adds
// the property, and no call reads it before its own has seen it there.
class UserTag::Tagger final : public grpc::AuthMetadataProcessor {
 public:
  void SetUser(uint32_t user) {
    const std::lock_guard lock(mutex_);
    user_ = absl::StrCat(user);
  }

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& /*metadata*/, grpc::AuthContext* connection,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const std::lock_guard lock(mutex_);
    if (connection->FindPropertyValues(kProperty).empty()) {
      connection->AddProperty(kProperty, user_);
    }
    return grpc::Status::OK;
  }

 private:
  std::mutex mutex_;
  std::string user_;
};

UserTag::UserTag() : tagger_(std::make_shared<Tagger>()) {}

void UserTag::SetUser(uint32_t user) { tagger_->SetUser(user); }

std::shared_ptr<grpc::ServerCredentials> UserTag::NewCredentials() const {
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::LocalServerCredentials(UDS);
  credentials->SetAuthMetadataProcessor(tagger_);
  return credentials;
}

std::optional<uint32_t> UserTag::Read(const grpc::AuthContext& connection) {
  const std::vector<grpc::string_ref> values = connection.FindPropertyValues(kProperty);
  uint32_t user = 0;
  if (values.size() != 1 ||
      !absl::SimpleAtoi(absl::string_view(values[0].data(), values[0].size()), &user)) {
    return std::nullopt;
  }
  return user;
}

}  // namespace reprise::service
