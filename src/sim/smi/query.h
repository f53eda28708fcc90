// SPDX-License-Identifier: Apache-2.0
// --query-gpu, --query-compute-apps, --query-remapped-rows, --query-retired-pages and
// --query-supported-clocks: CSV of chosen fields. The tables of fields also make --help-query-gpu
// and so on. Errors: a name that is not in the table is what the real tool says, exit code 2.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/gpu.h"

namespace tessera::smi {

struct CsvFormat {
  bool header = true;
  bool units = true;
};

// Of the whole node, for fields that are not a GPU's.
struct NodeFacts {
  std::string timestamp;  // "2026/11/21 11:41:50.123"
  std::string driver_version;
  size_t gpu_count = 0;
};

enum class QueryKind { kGpu, kComputeApps, kRemappedRows, kRetiredPages, kSupportedClocks };

// The kind of "--query-gpu" or, as `prefix` says, "--help-query-gpu"; false for other options.
bool FindQuery(std::string_view option, std::string_view prefix, QueryKind* kind);

// Appends the CSV to *out. On an unknown field: false, and *out holds only the message.
bool Query(QueryKind kind, std::string_view fields, const CsvFormat& format, const NodeFacts& node,
           const std::vector<Gpu>& gpus, std::string* out);

std::string HelpQuery(QueryKind kind);

}  // namespace tessera::smi
