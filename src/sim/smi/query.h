// SPDX-License-Identifier: Apache-2.0
// --query-gpu, --query-compute-apps, --query-remapped-rows, --query-retired-pages and
// --query-supported-clocks: CSV of selected fields. The tables of fields also serve
// --help-query-gpu and similar options. An unknown name gives the real tool's message and exit code
// 2.
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

// Facts of the node, for fields that do not depend on a GPU.
struct NodeValues {
  std::string timestamp;  // "2026/11/21 11:41:50.123"
  std::string driver_version;
  size_t gpu_count = 0;
};

enum class QueryKind { kGpu, kComputeApps, kRemappedRows, kRetiredPages, kSupportedClocks };

// Finds the kind of an option that begins with `prefix`: "--query-" or "--help-query-". False: the
// option is no such query.
bool FindQuery(std::string_view option, std::string_view prefix, QueryKind* kind);

// Appends the CSV to *out. False: unknown field; *out has only the message.
bool Query(QueryKind kind, std::string_view fields, const CsvFormat& format, const NodeValues& node,
           const std::vector<NvmlGpu>& gpus, std::string* out);

std::string HelpQuery(QueryKind kind);

}  // namespace tessera::smi
