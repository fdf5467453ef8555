// SPDX-License-Identifier: Apache-2.0
// Process: this program once more, with other arguments; killed with SIGKILL where it is still
// there in the end.
#ifndef REPRISE_TESTS_STRESS_PROCESS_H_
#define REPRISE_TESTS_STRESS_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace reprise::stress {

class Process {
 public:
  // A failure to start is gtest's.
  explicit Process(const std::vector<std::string>& arguments);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Returns when it is dead. True where it had not ended by itself.
  bool Kill();
  // Returns when none of it runs any more.
  void Freeze();
  void Thaw();
  // Waits for its end. The status that it exits with, or -1 for another end.
  int Wait();
  // By itself.
  bool HasEnded();

 private:
  pid_t pid_ = -1;
};

}  // namespace reprise::stress

#endif  // REPRISE_TESTS_STRESS_PROCESS_H_
