// SPDX-License-Identifier: Apache-2.0
// `tessera-runtime configure` as a separate program, so that these tests need not build the whole
// runtime.
#include "src/runtime/engine/configure.h"

int main(int argc, char** argv) { return tessera::engine::ConfigureMain(argc, argv); }
