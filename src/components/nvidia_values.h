// SPDX-License-Identifier: Apache-2.0
// Converts values of NVIDIA's gpu-operator chart in a spec:
//
//   daemonsets.*                            the same names, as in Tessera's values.yaml
//   hostPaths.driverInstallDir              agent.driverRoot
//   toolkit.enabled                         runtime.enabled
//   operator.runtimeClass                   runtime.runtimeClass
//   dcgmExporter.enabled, .config.name      exporter.enabled, exporter.configMap
//   dcgmExporter.serviceMonitor.enabled     podMonitor.enabled
//   imagePullSecrets                        image.pullSecrets
//   others with "enabled"                   rejected where Tessera cannot do what they say
//
// Threads: pure function.
#pragma once

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::components {

// Replaces NVIDIA's values in the spec by ours, except `driver` (driver_settings.h).
// INVALID_ARGUMENT with the remedy for a value that Tessera cannot follow.
Status TranslateNvidiaValues(Json* spec);

}  // namespace tessera::components
