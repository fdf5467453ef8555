// SPDX-License-Identifier: Apache-2.0
// FilesChange: what reading the server's files again has changed. Threads: a value.
#ifndef REPRISE_SERVICE_FILES_CHANGE_H_
#define REPRISE_SERVICE_FILES_CHANGE_H_

#include <cstdint>

namespace reprise::service {

struct FilesChange {
  uint32_t identities_added = 0;
  uint32_t identities_changed = 0;
  uint32_t identities_removed = 0;
  uint32_t sessions_ended = 0;  // of those that were removed, or may have none any more
  bool tls = false;             // certificate and key, and what goes with them, were read as well
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_FILES_CHANGE_H_
