// SPDX-License-Identifier: Apache-2.0
// The program `tessera`, under all its names.
#pragma once

namespace tessera::cli {

// Runs the command. A command that reads the cluster's ledger ends the process itself; all others
// return an exit code (sysexits.h, by the table in base/status.cc).
int RunCli(int argc, const char* const* argv);

}  // namespace tessera::cli
