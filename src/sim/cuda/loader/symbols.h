// SPDX-License-Identifier: Apache-2.0
// Exports of the library and the symbols of cuGetProcAddress, both from api/cuda_symbols.inc.
//
// Every symbol of the table has a weak definition that returns NOT_SUPPORTED. A definition in
// another file replaces it. Threads: any. Cost of a lookup: one hash of the name, no allocation.
#pragma once

#include <string_view>

namespace tessera::cuda {

// The address of an export. The caller casts it to the type of the export.
using AnyFunction = int (*)();

enum class Lookup { kFound = 0, kSymbolNotFound = 1, kVersionNotSufficient = 2 };

struct FoundSymbol {
  AnyFunction function = nullptr;
  Lookup status = Lookup::kSymbolNotFound;
};

// The answer of a driver with CUDA version `driver` to a program built for `version`.
FoundSymbol FindSymbol(std::string_view base_name, bool per_thread_stream, unsigned version,
                       unsigned driver);

// Counts the call of an unimplemented function and returns NOT_SUPPORTED, or NOT_INITIALIZED before
// cuInit. Defined in unimplemented.cc.
int ReportUnimplemented(const char* symbol);

}  // namespace tessera::cuda
