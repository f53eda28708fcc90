// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/run.h"

int main(int argc, char** argv) {
  return tessera::smi::Run(std::vector<std::string>(argv + 1, argv + argc));
}
