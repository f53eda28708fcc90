// SPDX-License-Identifier: Apache-2.0
// `tessera-runtime configure` as a program of its own, so that the tests need nothing else.
#include "src/runtime/engine/configure.h"

int main(int argc, char** argv) { return tessera::engine::ConfigureMain(argc, argv); }
