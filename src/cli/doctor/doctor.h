// SPDX-License-Identifier: Apache-2.0
// What `tessera doctor` prints. Included only in src/cli.
#pragma once

#include <string>
#include <vector>

#include "src/cli/doctor/checks.h"
#include "src/cli/output/listing.h"

namespace tessera::cli {

Result<std::string> ShowFindings(const std::vector<DoctorFinding>& findings, const Style& style);
// The list of all checks.
Result<std::string> ShowChecks(const Style& style);

}  // namespace tessera::cli
