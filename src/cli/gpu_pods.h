// SPDX-License-Identifier: Apache-2.0
// Whether a pod holds GPUs or may. Threads: pure functions. Included only in src/cli.
#pragma once

#include <string>

#include "src/formats/json.h"
#include "src/kube/objects.h"

namespace tessera::cli {

// Whether the pod requests GPUs, is bound, and has not ended.
bool HoldsGpus(const Json& pod);
// Whether the pod succeeded or failed.
bool HasEnded(const Json& pod);
// Why the pod has no share of a GPU and will get none: it has ended, or requests no share. "" if it
// may have one.
std::string ReasonForNoShare(const kube::PodObject& pod);
// "namespace/name".
std::string NameOfPod(const Json& pod);

}  // namespace tessera::cli
