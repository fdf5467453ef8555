// SPDX-License-Identifier: Apache-2.0
#include "service/reflection_service.h"

#include <array>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/support/status.h"
#include "service/out_of_memory.h"
#include "service/status.h"

namespace reprise::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

constexpr std::array kServices = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                  "grpc.reflection.v1alpha.ServerReflection",
                                  "reprise.v1.StepService"};

void SetError(grpc::StatusCode code, const std::string& message,
              ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(message);
}

void AddFile(const google::protobuf::FileDescriptor& file, std::set<std::string>* added,
             ServerReflectionResponse* response) {
  if (!added->insert(file.name()).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response->mutable_file_descriptor_response()->add_file_descriptor_proto(
      proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), added, response);
}

// `file`: nullptr where nothing has that name.
void AnswerWithFile(const google::protobuf::FileDescriptor* file, const std::string& what,
                    ServerReflectionResponse* response) {
  if (file == nullptr) {
    SetError(grpc::StatusCode::NOT_FOUND, what + ": this server knows none", response);
    return;
  }
  std::set<std::string> added;
  AddFile(*file, &added, response);
}

void AnswerWithExtensionNumbers(const DescriptorPool& pool, const std::string& type,
                                ServerReflectionResponse* response) {
  const Descriptor* descriptor = pool.FindMessageTypeByName(type);
  if (descriptor == nullptr) {
    SetError(grpc::StatusCode::NOT_FOUND, "message \"" + type + "\": this server knows none",
             response);
    return;
  }
  auto* numbers = response->mutable_all_extension_numbers_response();
  numbers->set_base_type_name(type);
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(descriptor, &extensions);
  for (const FieldDescriptor* extension : extensions) {
    numbers->add_extension_number(extension->number());
  }
}

// One call: reads a request, writes its answer, reads the next.
class Conversation final
    : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  // Ends at once where the call is not allowed.
  explicit Conversation(const absl::Status& allowed) {
    if (allowed.ok()) {
      StartRead(&request_);
    } else {
      Finish(ToGrpcStatus(allowed));
    }
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    try {
      response_ = Reflect(request_);
    } catch (const std::bad_alloc&) {
      Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, ""});
      return;
    }
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&request_);
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

}  // namespace

ServerReflectionResponse Reflect(const ServerReflectionRequest& request) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      AnswerWithFile(pool.FindFileByName(request.file_by_filename()),
                     "file \"" + request.file_by_filename() + "\"", &response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      AnswerWithFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                     "symbol \"" + request.file_containing_symbol() + "\"", &response);
      break;
    case ServerReflectionRequest::kFileContainingExtension: {
      const auto& asked = request.file_containing_extension();
      const Descriptor* type = pool.FindMessageTypeByName(asked.containing_type());
      const FieldDescriptor* extension =
          type == nullptr ? nullptr : pool.FindExtensionByNumber(type, asked.extension_number());
      AnswerWithFile(extension == nullptr ? nullptr : extension->file(),
                     "extension " + std::to_string(asked.extension_number()) + " of \"" +
                         asked.containing_type() + "\"",
                     &response);
      break;
    }
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      AnswerWithExtensionNumbers(pool, request.all_extension_numbers_of_type(), &response);
      break;
    case ServerReflectionRequest::kListServices:
      for (const char* service : kServices) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      SetError(grpc::StatusCode::INVALID_ARGUMENT,
               "message_request: got none, allowed one of its five", &response);
      break;
  }
  return response;
}

grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>*
ReflectionService::ServerReflectionInfo(grpc::CallbackServerContext* context) {
  return new Conversation(CatchOutOfMemory([&] { return check_(*context); }));
}

OldReflectionService::OldReflectionService(ReflectionService& reflection) {
  // As generated code does it for the service's own messages.
  MarkMethodCallback(
      0, new grpc::internal::CallbackBidiHandler<ServerReflectionRequest, ServerReflectionResponse>(
             [&reflection](grpc::CallbackServerContext* context) {
               return reflection.ServerReflectionInfo(context);
             }));
}

}  // namespace reprise::service
