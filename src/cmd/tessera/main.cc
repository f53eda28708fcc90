// SPDX-License-Identifier: Apache-2.0
// tessera: the GPUs of a cluster, who holds them, and why; also kubectl-tessera and
// kubectl-inspect-gpushare.
#include "src/cli/run.h"

int main(int argc, char** argv) { return tessera::cli::RunCli(argc, argv); }
