// SPDX-License-Identifier: Apache-2.0
// The page that a profile is shown in (tools/profile/page.html), as the program carries it.
#ifndef REPRISE_TOOLS_PROFILE_PAGE_H_
#define REPRISE_TOOLS_PROFILE_PAGE_H_

namespace reprise::tools {

// "{{profile}}" stands once in it, for the profile's JSON.
extern const char kPage[];

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_PAGE_H_
