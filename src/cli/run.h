// SPDX-License-Identifier: Apache-2.0
// The program `tessera`, under all of its names.
#pragma once

namespace tessera::cli {

// Parses, asks, prints, and ends the program, or gives the exit code where it had nothing to ask
// (sysexits.h, by the table in base/status.cc).
int RunCli(int argc, const char* const* argv);

}  // namespace tessera::cli
