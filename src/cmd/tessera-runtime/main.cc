// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/runtime.h"

int main(int argc, char** argv) { return tessera::runtime::RuntimeMain(argc, argv); }
