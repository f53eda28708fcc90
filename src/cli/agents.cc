// SPDX-License-Identifier: Apache-2.0
#include "src/cli/agents.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "api/names.h"

namespace tessera::cli {
namespace {

bool ComesBefore(const ContainerUse& a, const ContainerUse& b) {
  return std::tie(a.ns, a.pod, a.container, a.node, a.gpu, a.uuid) <
         std::tie(b.ns, b.pod, b.container, b.node, b.gpu, b.uuid);
}

}  // namespace

void AgentReader::Read(std::string node, Done done) {
  uses_ = {};
  done_ = std::move(done);
  pages_.Read(
      std::move(node), {std::string(names::kContainersPath)},
      [this](const kube::AgentPages::AgentPod& agent, std::string_view,
             const Result<std::string>& page) { OnPage(agent, page); },
      [this](const Status& status) {
        const Done report = std::exchange(done_, nullptr);
        if (!status.ok()) return report(status);
        std::ranges::sort(uses_.uses, ComesBefore);
        report(std::move(uses_));
      });
}

void AgentReader::OnPage(const kube::AgentPages::AgentPod& agent, const Result<std::string>& page) {
  uses_.agent_nodes.insert(agent.node);
  const Result<UsagePage> usage = page.ok() ? DecodeUses(*page) : Result<UsagePage>(page.status());
  Status problem = usage.status();
  if (usage.ok()) {
    uses_.uses.insert(uses_.uses.end(), usage->uses.begin(), usage->uses.end());
    if (!usage->complete) {
      problem = Status(Code::kUnavailable,
                       "has just started; rows are missing until it has found all containers, a "
                       "second or two");
    }
  }
  if (!problem.ok()) uses_.problems[agent.node] = problem.Annotate("agent " + agent.pod);
}

}  // namespace tessera::cli
