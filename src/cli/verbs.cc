// SPDX-License-Identifier: Apache-2.0
#include "src/cli/verbs.h"

namespace tessera::cli {

std::span<const Verb> Verbs() {
  static constexpr Verb kVerbs[] = {
      {"install", "install Tessera in the cluster", AddInstall},
      {"upgrade", "change the settings or the version of what \"tessera install\" installed",
       AddUpgrade},
      {"uninstall", "remove Tessera from the cluster; pods keep running", AddUninstall},
      {"migrate", "put Tessera in the place of NVIDIA's operator or another device plugin",
       AddMigrate},
      {"status", "whether each component works, and what to do if not", AddStatus},
      {"dashboard", "the web console on this machine, with your rights", AddDashboard},
      {"nodes", "GPUs of each node, used and free", AddNodes, "node"},
      {"gpus", "each GPU: holders, free capacity, health", AddGpus, "gpu"},
      {"pods", "GPU requests of pods, and the GPUs they hold", AddPods, "pod"},
      {"explain", "why a pod is on its node, or why it waits", AddExplain},
      {"quota", "GPUs by namespace and model: used, left, limit", AddQuota, "quotas"},
      {"top", "GPU usage of containers with a share, from the agents", AddTop},
      {"limit", "lower the GPU limits of a running pod's containers", AddLimit},
      {"inspect-gpushare",
       "device memory by node, in the format of gpushare's \"kubectl inspect gpushare\"",
       AddInspectGpushare},
      {"doctor", "what is wrong with the installation, its nodes and pods, why, and what to do",
       AddDoctor},
      {"test", "run pods that use GPUs in every way, and say which of them fail, and why", AddTest},
      {"sysdump", "collect objects, logs and facts for a report, without secrets", AddSysdump},
      {"version", "versions of this program and of all components", AddVersion},
      {"completion", "script that completes the command line in a shell", AddCompletion},
  };
  return kVerbs;
}

std::string_view ResolveSynonym(std::string_view word) {
  for (const Verb& verb : Verbs()) {
    if (verb.synonym != nullptr && word == verb.synonym) return verb.name;
  }
  return word;
}

}  // namespace tessera::cli
