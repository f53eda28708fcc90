// SPDX-License-Identifier: Apache-2.0
// Converts values of NVIDIA's gpu-operator chart in a spec to Tessera's settings:
//
//   daemonsets.*                            the same names, as in Tessera's values.yaml
//   hostPaths.driverInstallDir              agent.driverRoot
//   toolkit.enabled                         runtime.enabled
//   operator.runtimeClass                   runtime.runtimeClass
//   operator.tolerations                    operator.tolerations, of the pods of tessera-operator
//   dcgmExporter.enabled, .config.name      exporter.enabled, exporter.configMap
//   dcgmExporter.serviceMonitor.enabled, .interval, .additionalLabels
//                                           serviceMonitor.enabled, .interval, .labels
//   imagePullSecrets                        image.pullSecrets
//   others                                  rejected or ignored, as chart/files/nvidia-values.yaml
//                                           states (IgnoredValues in settings.h)
//
// Threads: pure function.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::components {

// Whether the value stands for a default, because NVIDIA's chart leaves it empty.
bool IsEmpty(const Json& value);

// Why Tessera ignores the value or section of this name, such as "mig" or "driver.startupProbe". ""
// for a name that Tessera supports or does not know.
std::string ReasonToIgnore(std::string_view name);

// Replaces NVIDIA's values in the spec by Tessera's, except `driver` (driver_settings.h).
// INVALID_ARGUMENT with the remedy for a value that Tessera cannot follow.
Status TranslateNvidiaValues(Json* spec);

}  // namespace tessera::components
