// SPDX-License-Identifier: Apache-2.0
// tessera: shows the GPUs of a cluster and their holders; also kubectl-tessera and
// kubectl-inspect-gpushare.
#include "src/cli/command_line.h"

int main(int argc, char** argv) { return tessera::cli::RunCli(argc, argv); }
