// SPDX-License-Identifier: Apache-2.0
// The verbs of a scheduler extender as decisions on the ledger: which nodes fit, how good they are,
// who must go for a pod. Nothing of it is written to the API server; binding is binder.h's.
//
// kube-scheduler asks about the next pod before it has bound the one before. So that it sees that
// one's GPUs as taken, the best node's are held for some seconds when it was named: by prioritize,
// or by filter where only one node fits, because kube-scheduler then asks no more. Another question
// about the pod, its binding, or time lets them go.
//
// Not for HTTP (verbs.h). Threads: the runner's. Ownership: ledger, binder, clock and metrics
// outlive it. Cost: filter and prioritize are a pass over the nodes that are asked about.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/kube/events.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/metrics.h"
#include "src/scheduler/wire.h"

namespace tessera::scheduler {

struct ExtenderOptions {
  // How long a node's GPUs are held for a pod between its choice and its binding.
  Duration hold = std::chrono::seconds(5);
  // The same refusal about the same pod is told as an Event once in this time.
  Duration repeat_event = std::chrono::minutes(1);
};

class Extender {
 public:
  // About a pod, for people who look at it.
  using Tell = std::function<void(const kube::PodObject& pod, kube::EventKind kind,
                                  std::string_view reason, const std::string& message)>;
  // As the feed has it; null where it has none. Key: "ns/name".
  using FindPod = std::function<const kube::PodObject*(const std::string& key)>;

  Extender(ledger::ClusterLedger& ledger, Binder& binder, const Clock& clock,
           SchedulerMetrics& metrics, FindPod find_pod, Tell tell, ExtenderOptions options);

  FilterResult Filter(const ExtenderArgs& args);
  // As gpu-admission answered: the best node alone, which is held, and the others' refusals in its
  // words.
  FilterResult FilterToOne(const ExtenderArgs& args);
  // By position: 10 for the best node alone, 0 to 9 for the others by rank, equals alike.
  std::vector<int> Prioritize(const ExtenderArgs& args);
  // CPU nodes before GPU nodes, as gpu-admission had it.
  std::vector<int> PrioritizeCpuNodes(const ExtenderArgs& args) const;
  // Nodes on which the pod gets room if these pods go; those where no eviction helps are left out.
  // Never a node without victims: kube-scheduler drops the whole answer then.
  Victims Preempt(const PreemptionArgs& args);
  void Bind(const BindingArgs& args, Binder::Done done);

  // Lets go of what was held too long. Call it every second or so.
  void Tick();

 private:
  using Question = ledger::ClusterLedger::Question;
  struct Asked {
    kube::PodObject pod;
    MonotonicTime at;
  };
  struct Told {
    std::string message;
    MonotonicTime at;
  };

  // A question about a pod that may be decided about.
  Result<Question> Ask(const kube::PodObject& pod);
  void Hold(const kube::PodObject& pod, const Question& question, std::string_view node);
  void TellOfQuota(const kube::PodObject& pod, const Question& question);
  // By position, null for names that nobody knows.
  std::vector<const ledger::NodeEntry*> NodesOf(const ExtenderArgs& args) const;
  bool HasGpus(std::string_view node) const;
  // Scores by position; kUnfit where it does not fit or is not known.
  std::vector<float> ScoresOf(const ExtenderArgs& args, const Question& question);

  ledger::ClusterLedger& ledger_;
  Binder& binder_;
  const Clock& clock_;
  SchedulerMetrics& metrics_;
  const FindPod find_pod_;
  const Tell tell_;
  const ExtenderOptions options_;
  // Pods that are held: kube-scheduler may know them before our feed does.
  std::map<std::string, Asked, std::less<>> asked_;  // by UID
  std::map<std::string, Told, std::less<>> told_;    // by UID
};

}  // namespace tessera::scheduler
