// SPDX-License-Identifier: Apache-2.0
// The `reprise` program. The only place that reads the environment.
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <cstdlib>

#include "tools/command_line.h"

int main(int argc, char** argv) {
  // Errors reach the user as one line of ours; gRPC's own log is for those who ask for it.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) {
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
  // Clients would write to it: a line for each text of theirs that is no UTF-8. They are told by
  // the error of their call.
  google::protobuf::SetLogHandler(nullptr);
  return reprise::tools::RunCommandLine(argc, argv, reprise::tools::kCommit);
}
