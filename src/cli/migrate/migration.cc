// SPDX-License-Identifier: Apache-2.0
#include "src/cli/migrate/migration.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "api/names.h"
#include "src/base/uid.h"
#include "src/cli/gpu_pods.h"
#include "src/cli/install/spec_flags.h"
#include "src/cli/other_plugins.h"
#include "src/cli/status.h"
#include "src/components/settings.h"
#include "src/device/request.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kNvidiaOperator = "NVIDIA's operator";
constexpr std::string_view kGpuManager = "gpu-manager";

// The device plugins that run now.
struct RunningPlugins {
  std::map<std::string, std::string> system_of_node;
  std::map<std::string, std::string> daemon_set_of_node;
};

std::string DaemonSetText(const Json& daemon_set) { return "DaemonSet " + NameOfPod(daemon_set); }

// The nodes that run pods of each owner, such as a DaemonSet, by the owner's UID.
std::map<Uid, std::set<std::string>> NodesOfOwners(const std::vector<Json>& pods) {
  std::map<Uid, std::set<std::string>> nodes;
  for (const Json& pod : pods) {
    const std::string node = TextAt(pod, {"spec", "nodeName"});
    if (node.empty() || HasEnded(pod)) continue;
    for (const Json& owner : ItemsAt(pod, {"metadata", "ownerReferences"})) {
      nodes[Uid(TextAt(owner, {"uid"}))].insert(node);
    }
  }
  return nodes;
}

// The oldest policy: NVIDIA's operator ignores the others.
const Json* PolicyInForce(const std::vector<Json>& policies) {
  const auto age = [](const Json& policy) {
    return std::pair(TextAt(policy, {"metadata", "creationTimestamp"}),
                     TextAt(policy, {"metadata", "name"}));
  };
  const auto oldest = std::ranges::min_element(policies, {}, age);
  return oldest == policies.end() ? nullptr : &*oldest;
}

// The pod's limits of GPU resources of any system: "nvidia.com/gpu: 1". Sets `has_foreign_resource`
// if Tessera does not offer one of the resources.
std::string GpuRequestOf(const Json& pod, bool* has_foreign_resource) {
  std::string text;
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : ItemsAt(pod, {"spec", list})) {
      for (const auto& [resource, amount] : MembersAt(container, {"resources", "limits"})) {
        const bool is_foreign = IsForeignGpuResource(resource);
        if (!is_foreign && !device::IsGpuResource(resource)) continue;
        *has_foreign_resource = *has_foreign_resource || is_foreign;
        text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", resource,
                            amount.is_string() ? amount.string_value() : amount.Serialize());
      }
    }
  }
  return text;
}

std::string GpusOfNode(const Json& node) {
  std::string text;
  for (const auto& [resource, amount] : MembersAt(node, {"status", "allocatable"})) {
    const std::string count = amount.is_string() ? amount.string_value() : amount.Serialize();
    if (count == "0" || (!device::IsGpuResource(resource) && !IsForeignGpuResource(resource)))
      continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", resource, count);
  }
  return text;
}

class MigrationPlanner {
 public:
  explicit MigrationPlanner(const MigrationFacts& facts) : facts_(facts) {}

  Result<Migration> Plan(const Json& overrides) {
    plan_.resource = components::TesseraResource(Json::MakeObject());
    RETURN_IF_ERROR(PlanPolicy());
    PlanPlugins();
    if (plan_.sources.empty()) {
      return Error(Code::kNotFound,
                   "nothing to migrate from: there is neither a ClusterPolicy of NVIDIA's operator "
                   "nor a DaemonSet of a known device plugin: use \"tessera install\"");
    }
    plan_.resource.Set("spec", CombineSpecs(*plan_.resource.Find("spec"), overrides));
    RETURN_IF_ERROR(components::ParseSettings(*plan_.resource.Find("spec"))
                        .status()
                        .Annotate("the settings of the systems to replace"));
    PlanPods();
    PlanNodes();
    plan_.steps.push_back(
        fmt::format("connect kube-scheduler: {}; remove the extender of the earlier system",
                    kConnectKubeScheduler));
    return std::move(plan_);
  }

 private:
  Status PlanPolicy() {
    const Json* policy = PolicyInForce(facts_.policies);
    if (policy == nullptr) return Status::Ok();
    ASSIGN_OR_RETURN(components::MigrationPlan plan, components::PlanMigration(*policy));
    const auto nodes = std::ranges::count_if(
        facts_.nodes, [](const Json& node) { return components::IsManagedByNvidia(node); });
    plan_.sources.push_back({"ClusterPolicy " + TextAt(*policy, {"metadata", "name"}),
                             std::string(kNvidiaOperator), static_cast<size_t>(nodes)});
    plan_.resource = std::move(plan.resource);
    plan_.mapped_settings = std::move(plan.mapped_settings);
    plan_.unmapped_settings = std::move(plan.unmapped_settings);
    plan_.steps = std::move(plan.steps);
    return Status::Ok();
  }

  void PlanPlugins() {
    const auto nodes = NodesOfOwners(facts_.pods);
    for (const Json& set : facts_.daemon_sets) {
      const std::string_view system = OtherPluginOf(set);
      if (system.empty() || IsRunByNvidiaOperator(set)) continue;
      const auto found = nodes.find(Uid(TextAt(set, {"metadata", "uid"})));
      const std::set<std::string> plugin_nodes =
          found == nodes.end() ? std::set<std::string>() : found->second;
      for (const std::string& node : plugin_nodes) {
        running_.system_of_node[node] = system;
        running_.daemon_set_of_node[node] = DaemonSetText(set);
      }
      plan_.sources.push_back({DaemonSetText(set), std::string(system), plugin_nodes.size()});
      PlanFlags(set, system);
      if (plugin_nodes.empty()) continue;
      plan_.obstacles.push_back(fmt::format(
          "{} ({}) offers the same GPUs on {} node{}; pods go on without it: kubectl -n {} delete "
          "daemonset {}",
          DaemonSetText(set), system, plugin_nodes.size(), plugin_nodes.size() == 1 ? "" : "s",
          TextAt(set, {"metadata", "namespace"}), TextAt(set, {"metadata", "name"})));
    }
  }

  void PlanFlags(const Json& set, std::string_view system) {
    const std::string object = DaemonSetText(set);
    if (system == "gpushare" && FlagOf(set, "--memory-unit") == "MiB") {
      Json sharing = Json::MakeObject({{"memoryUnit", Json::String("MiB")}});
      plan_.resource.Find("spec")->Set("sharing", std::move(sharing));
      plan_.mapped_settings.push_back(
          {object + " --memory-unit", "sharing.memoryUnit", Json::String("MiB")});
    }
    if (system == kGpuManager && !FlagOf(set, "--extra-config").empty()) {
      plan_.unmapped_settings.push_back(object + " --extra-config: further devices are not given");
    }
    for (const char* flag : {"--config-file", "--mig-strategy"}) {
      if (system != "NVIDIA's device plugin" || FlagOf(set, flag).empty()) continue;
      plan_.unmapped_settings.push_back(
          fmt::format("{} {}: there is no time-slicing, and MIG devices are offered as they are",
                      object, flag));
    }
    if (system == "HAMi" || system == "Volcano vGPU") {
      plan_.unmapped_settings.push_back(
          object +
          ": its resources for shares: request aliyun.com/gpu-mem or tencent.com/vcuda-core");
    }
  }

  void PlanPods() {
    for (const Json& pod : facts_.pods) {
      const std::string node = TextAt(pod, {"spec", "nodeName"});
      bool has_foreign_resource = false;
      const std::string request = GpuRequestOf(pod, &has_foreign_resource);
      if (node.empty() || request.empty() || HasEnded(pod)) continue;
      ++pods_of_node_[node];
      std::string outcome = "keeps running";
      if (has_foreign_resource) {
        outcome += "; a new pod with this request waits";
      } else if (request.starts_with(names::kResourceVcudaCore) && SystemOf(node) == kGpuManager) {
        outcome += "; if one of its containers restarts, delete the pod";
      }
      plan_.pods.push_back({NameOfPod(pod), node, request, std::move(outcome)});
    }
    std::ranges::sort(plan_.pods, {}, &MigrationPod::name);
  }

  void PlanNodes() {
    for (const Json& node : facts_.nodes) {
      MigrationNode line{.name = TextAt(node, {"metadata", "name"}), .gpus = GpusOfNode(node)};
      line.system = SystemOf(line.name);
      if (components::IsManagedByNvidia(node)) {
        line.system = kNvidiaOperator;
        line.outcome = "no agent until its label nvidia.com/gpu.deploy.device-plugin is false";
      } else if (!line.system.empty()) {
        line.outcome =
            "an agent starts once " + running_.daemon_set_of_node[line.name] + " is deleted";
      } else {
        line.outcome = "an agent starts";
      }
      const auto pods = pods_of_node_.find(line.name);
      line.pods = pods == pods_of_node_.end() ? 0 : pods->second;
      if (!line.system.empty() || !line.gpus.empty()) plan_.nodes.push_back(std::move(line));
    }
    std::ranges::sort(plan_.nodes, {}, &MigrationNode::name);
  }

  std::string SystemOf(const std::string& node) const {
    const auto found = running_.system_of_node.find(node);
    return found == running_.system_of_node.end() ? "" : found->second;
  }

  const MigrationFacts& facts_;
  RunningPlugins running_;
  std::map<std::string, size_t> pods_of_node_;
  Migration plan_;
};

}  // namespace

Result<Migration> PlanOf(const MigrationFacts& facts, const Json& overrides) {
  return MigrationPlanner(facts).Plan(overrides);
}

}  // namespace tessera::cli
