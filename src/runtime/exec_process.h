// SPDX-License-Identifier: Apache-2.0
// Edits the process that `exec` starts in a container with GPUs. Engines copy the container's
// environment before `create` edits config.json, so in the copy PATH lacks the directory of
// nvidia-smi. Threads: one. Cost for containers without GPUs: one system call.
#pragma once

#include <string>

#include "src/base/status.h"

namespace tessera::runtime {

// The bundle of an `exec`, which has no --bundle option. `log`: the file of --log, or null.
// containerd's shim, which Docker also uses, keeps this file in the bundle. Other engines run exec
// in the bundle's directory.
std::string BundleOfExec(const char* log);

// Whether `create` or `run` gave GPUs to `bundle`.
bool IsGpuBundle(const std::string& bundle);

// Copies the edits of config.json in `bundle` to the process document in `file`: appends the
// driver's directories to PATH and LD_LIBRARY_PATH, and sets NVIDIA_VISIBLE_DEVICES if it still
// has the value from Allocate. Values that the caller of exec set stay. On an error the file is
// unchanged.
Status EditExecProcess(const std::string& bundle, const std::string& file);

}  // namespace tessera::runtime
