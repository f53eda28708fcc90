// SPDX-License-Identifier: Apache-2.0
// The process that `exec` starts in a container with GPUs. Engines take its environment from their
// own copy of the container's, made before `create` edited config.json; without help nvidia-smi
// would not be found by its name. Threads: one. Cost for containers without GPUs: one system call.
#pragma once

#include <string>

#include "src/base/status.h"

namespace tessera::runtime {

// `exec` is not told the bundle. containerd's shim, which Docker uses, too, keeps the log that it
// names
// (--log, may be null) in the container's bundle; others run exec in the bundle's folder.
std::string BundleOfExec(const char* log);

// Whether `bundle` was given GPUs by `create` or `run`.
bool IsGpuBundle(const std::string& bundle);

// Gives the process document in `file` what config.json in `bundle` got: the driver's folders at
// the end of PATH and LD_LIBRARY_PATH, and NVIDIA_VISIBLE_DEVICES where it still says what Allocate
// said. What the caller of exec set stays. On an error the file is as it was.
Status EditExecProcess(const std::string& bundle, const std::string& file);

}  // namespace tessera::runtime
