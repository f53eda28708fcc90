// SPDX-License-Identifier: Apache-2.0
// The program `tessera`, under all its names.
#pragma once

namespace tessera::cli {

// Runs the command and ends the program. Returns an exit code (sysexits.h, by the table in
// base/status.cc) only if the command does not read the cluster's ledger.
int RunCli(int argc, const char* const* argv);

}  // namespace tessera::cli
