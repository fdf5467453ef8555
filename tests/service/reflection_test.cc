// SPDX-License-Identifier: Apache-2.0
// Server reflection under both of its names; their messages are the same on the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/impl/codegen/rpc_method.h"
#include "grpcpp/support/sync_stream.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using ::testing::Contains;
using ::testing::HasSubstr;

class Reflection : public ::testing::TestWithParam<std::string> {
 protected:
  // The server's answers, in order.
  std::vector<ServerReflectionResponse> Ask(const std::vector<ServerReflectionRequest>& requests) {
    const std::string path =
        "/grpc.reflection." + GetParam() + ".ServerReflection/ServerReflectionInfo";
    const auto channel = served_.NewChannel();
    const grpc::internal::RpcMethod method(path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING,
                                           channel);
    grpc::ClientContext context;
    const std::unique_ptr<
        grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>>
        stream(grpc::internal::ClientReaderWriterFactory<
               ServerReflectionRequest, ServerReflectionResponse>::Create(channel.get(), method,
                                                                          &context));
    std::vector<ServerReflectionResponse> answers;
    for (const ServerReflectionRequest& request : requests) {
      EXPECT_TRUE(stream->Write(request));
      EXPECT_TRUE(stream->Read(&answers.emplace_back()));
    }
    stream->WritesDone();
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return answers;
  }
  ServerReflectionResponse Ask(const ServerReflectionRequest& request) {
    return Ask(std::vector<ServerReflectionRequest>{request}).at(0);
  }

  ServedModel served_;
};

std::vector<std::string> FilesOf(const ServerReflectionResponse& response) {
  std::vector<std::string> names;
  for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
    google::protobuf::FileDescriptorProto file;
    EXPECT_TRUE(file.ParseFromString(bytes));
    names.push_back(file.name());
  }
  return names;
}

TEST_P(Reflection, ListsAllServices) {
  ServerReflectionRequest request;
  request.set_list_services("*");
  request.set_host("somewhere");
  const ServerReflectionResponse response = Ask(request);
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) {
    names.push_back(service.name());
  }
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("reprise.v1.StepService", "grpc.health.v1.Health",
                                              "grpc.reflection.v1.ServerReflection",
                                              "grpc.reflection.v1alpha.ServerReflection"));
  EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
}

TEST_P(Reflection, HandsOutTheFileOfASymbolAndTheFileByItsName) {
  std::vector<ServerReflectionRequest> requests(3);
  requests[0].set_file_containing_symbol("reprise.v1.StepService");
  requests[1].set_file_containing_symbol("reprise.v1.StepRequest");
  requests[2].set_file_by_filename("reprise/v1/step_service.proto");
  for (const ServerReflectionResponse& response : Ask(requests)) {
    EXPECT_THAT(FilesOf(response), Contains("reprise/v1/step_service.proto"));
  }
}

TEST_P(Reflection, WhatItDoesNotKnowIsAnErrorAndTheStreamGoesOn) {
  std::vector<ServerReflectionRequest> requests(6);
  requests[0].set_file_by_filename("none.proto");
  requests[1].set_file_containing_symbol("reprise.v1.None");
  requests[2].mutable_file_containing_extension()->set_containing_type("reprise.v1.StepRequest");
  requests[2].mutable_file_containing_extension()->set_extension_number(1000);
  requests[3].set_all_extension_numbers_of_type("reprise.v1.None");
  requests[5].set_list_services("");
  const auto answers = Ask(requests);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answers[i].error_response().error_code(), grpc::StatusCode::NOT_FOUND) << i;
  }
  EXPECT_TRUE(answers[4].has_error_response());
  EXPECT_TRUE(answers[5].has_list_services_response());
}

TEST_P(Reflection, MessagesWithoutExtensionsHaveNone) {
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("reprise.v1.StepRequest");
  const ServerReflectionResponse response = Ask(request);
  EXPECT_EQ(response.all_extension_numbers_response().base_type_name(), "reprise.v1.StepRequest");
  EXPECT_EQ(response.all_extension_numbers_response().extension_number_size(), 0);
}

INSTANTIATE_TEST_SUITE_P(, Reflection, ::testing::Values("v1", "v1alpha"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::service
