// SPDX-License-Identifier: Apache-2.0
// `tessera test`: runs the cases one after the other in a namespace of their own, and removes it at
// the end, also after Ctrl-C.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <memory>
#include <random>
#include <thread>

#include "src/cli/cluster_client.h"
#include "src/cli/options.h"
#include "src/cli/output/text.h"
#include "src/cli/selftest/cases.h"
#include "src/cli/verbs.h"
#include "src/formats/json.h"

namespace tessera::cli {
namespace {

constexpr Duration kRequestTimeout = std::chrono::seconds(10);
constexpr Duration kPodPollInterval = std::chrono::milliseconds(500);
// A namespace is usable once it has its service account.
constexpr Duration kNamespaceTimeout = std::chrono::seconds(20);
constexpr Duration kRemovalTimeout = std::chrono::seconds(60);
// The kubelet's deadline is later than the command's timeout, so that the command reports it.
constexpr std::chrono::seconds kDeadlineAfterTimeout{30};
constexpr size_t kMaxTestLog = 64 << 10;
constexpr int kExitFailed = 1;
constexpr int kExitInterrupted = 130;

volatile std::sig_atomic_t interrupted = 0;

struct TestOptions {
  ClusterOptions cluster;
  StyleOptions style;
  std::string image = "tessera.dev/samples/vectoradd:dev";
  std::string pull_policy = "IfNotPresent";
  std::vector<std::string> selected_cases;
  int case_timeout_s = 120;
  bool keeps_namespace = false;
};

struct TestVerdict {
  const TestCase* test;
  std::string state;   // ok, failed, skipped
  std::string reason;  // of failed and skipped
  std::string node;    // "" if the pod has none
};

class SelfTest {
 public:
  SelfTest(const TestOptions& options, Style style, kube::Config config)
      : options_(options),
        style_(std::move(style)),
        api_(std::move(config), options.cluster.timeout(), kRequestTimeout),
        ns_(fmt::format("tessera-test-{:06x}", std::random_device()() & 0xffffff)) {}

  int Run() {
    Status status = Prepare();
    for (const TestCase& test : TestCases()) {
      if (!status.ok() || interrupted != 0) break;
      if (!options_.selected_cases.empty() &&
          std::ranges::find(options_.selected_cases, test.name) == options_.selected_cases.end()) {
        continue;
      }
      status = RunCase(test);
    }
    const Status removed = options_.keeps_namespace ? Status::Ok() : RemoveNamespace();
    if (interrupted != 0) {
      std::fputs(options_.keeps_namespace || !removed.ok()
                     ? "tessera: interrupted\n"
                     : "tessera: interrupted; the namespace is removed\n",
                 stderr);
    }
    if (!status.ok()) return Fail(status);
    if (!removed.ok()) return Fail(removed);
    return Report();
  }

 private:
  Status Prepare() {
    api_.ReadList({.type = kube::kNodes}, &nodes_);
    api_.Wait();
    RETURN_IF_ERROR(nodes_.status().Annotate("cannot list nodes"));
    const Json body = Json::MakeObject(
        {{"apiVersion", Json::String("v1")},
         {"kind", Json::String("Namespace")},
         {"metadata",
          Json::MakeObject({{"name", Json::String(ns_)},
                            {"labels", Json::MakeObject({{"app.kubernetes.io/name",
                                                          Json::String(kTestName)}})}})}});
    const Status created = api_.Create({kube::kNamespaces, ns_, "", ""}, body).status();
    // After a timeout the namespace may exist.
    namespace_may_exist_ = created.ok() || created.code() == Code::kDeadlineExceeded;
    return created.Annotate("tessera test needs a namespace of its own");
  }

  // Retries while the namespace has no service account yet.
  Status CreatePod(const TestCase& test) {
    const Json pod =
        PodOfCase(test, ns_, options_.image, options_.pull_policy,
                  std::chrono::seconds(options_.case_timeout_s) + kDeadlineAfterTimeout);
    const MonotonicTime end = api_.Now() + kNamespaceTimeout;
    while (true) {
      Status status = api_.Create(kube::Pod(ns_, test.name), pod).status();
      const bool wait = status.code() == Code::kPermissionDenied &&
                        status.message().find("serviceaccount") != std::string_view::npos;
      if (!wait || interrupted != 0 || api_.Now() > end) return status;
      std::this_thread::sleep_for(kPodPollInterval);
    }
  }

  Status RunCase(const TestCase& test) {
    const std::string skip = ReasonToSkip(test, *nodes_);
    if (!skip.empty()) return Record({&test, "skipped", skip, ""});
    const Status created = CreatePod(test);
    if (!created.ok()) return Record({&test, "failed", std::string(created.message()), ""});
    const MonotonicTime end = api_.Now() + std::chrono::seconds(options_.case_timeout_s);
    CaseResult result;
    while (interrupted == 0) {
      ASSIGN_OR_RETURN(result.pod, api_.Get(kube::Pod(ns_, test.name)));
      const std::string phase = TextAt(result.pod, {"status", "phase"});
      if (phase == "Succeeded" || phase == "Failed") break;
      if (api_.Now() > end) {
        // The next case may need its GPUs.
        if (!options_.keeps_namespace) (void)api_.Delete(kube::Pod(ns_, test.name)).ok();
        return Record({&test, "failed",
                       fmt::format("the pod has not ended in {} s: {}", options_.case_timeout_s,
                                   ReasonOfWait(result.pod)),
                       TextAt(result.pod, {"spec", "nodeName"})});
      }
      std::this_thread::sleep_for(kPodPollInterval);
    }
    if (interrupted != 0) return Status::Ok();
    return JudgeCase(test, &result);
  }

  Status JudgeCase(const TestCase& test, CaseResult* result) {
    const std::string node = TextAt(result->pod, {"spec", "nodeName"});
    Result<std::string> log = std::string();
    api_.ReadText(fmt::format("/api/v1/namespaces/{}/pods/{}/log?tailLines=200", ns_, test.name),
                  kMaxTestLog, &log);
    Result<Json> node_object = Json();
    if (!node.empty()) api_.ReadObject(kube::Node(node), &node_object);
    api_.Wait(kRequestTimeout);
    if (log.ok()) result->log = *std::move(log);
    if (node_object.ok()) result->node = *std::move(node_object);
    const std::string failure = Judge(test, *result);
    RETURN_IF_ERROR(Record({&test, failure.empty() ? "ok" : "failed", failure, node}));
    // The next case may need its GPUs.
    if (options_.keeps_namespace) return Status::Ok();
    const Status deleted = api_.Delete(kube::Pod(ns_, test.name));
    return deleted.code() == Code::kNotFound ? Status::Ok() : deleted;
  }

  // Keeps the verdict. As text it is printed at once; Report prints other formats at the end.
  Status Record(TestVerdict verdict) {
    if (style_.shows_cells()) {
      std::string line =
          fmt::format("{:<14} {:<8} {}", verdict.test->name, verdict.state,
                      verdict.reason.empty() ? verdict.test->purpose : verdict.reason);
      if (!verdict.node.empty()) line += fmt::format(" (node {})", verdict.node);
      std::puts(Printable(line).c_str());
      std::fflush(stdout);
    }
    verdicts_.push_back(std::move(verdict));
    return Status::Ok();
  }

  Status RemoveNamespace() {
    if (!namespace_may_exist_) return Status::Ok();
    const kube::ObjectRef object{kube::kNamespaces, ns_, "", ""};
    const MonotonicTime end = api_.Now() + kRemovalTimeout;
    Status status = api_.Delete(object);
    while (status.code() != Code::kNotFound) {
      if (api_.Now() > end) {
        return Error(Code::kDeadlineExceeded,
                     "namespace {} is not gone after a minute: kubectl delete namespace {}", ns_,
                     ns_);
      }
      std::this_thread::sleep_for(kPodPollInterval);
      status = api_.Get(object).status();
    }
    return Status::Ok();
  }

  int Report() {
    Listing list{.kind = "Test"};
    bool failed = false;
    for (const TestVerdict& verdict : verdicts_) {
      failed = failed || verdict.state == "failed";
      list.rows.push_back({Json::MakeObject({{"metadata", MetadataOf("", verdict.test->name)},
                                             {"what", Json::String(verdict.test->purpose)},
                                             {"state", Json::String(verdict.state)},
                                             {"reason", Json::String(verdict.reason)},
                                             {"node", Json::String(verdict.node)}}),
                           {}});
    }
    if (!style_.shows_cells()) {
      const Result<std::string> text = Print(std::move(list), style_);
      if (!text.ok()) return Fail(text.status());
      if (const int code = PrintOut(*text)) return code;
    }
    if (interrupted != 0) return kExitInterrupted;
    return failed ? kExitFailed : 0;
  }

  const TestOptions& options_;
  const Style style_;
  ClusterClient api_;
  const std::string ns_;
  bool namespace_may_exist_ = false;
  Result<std::vector<Json>> nodes_ = std::vector<Json>();
  std::vector<TestVerdict> verdicts_;
};

int RunTest(const TestOptions& options) {
  Result<Style> style = StyleOf(options.style);
  if (!style.ok()) return Fail(style.status());
  for (const std::string& name : options.selected_cases) {
    if (std::ranges::none_of(TestCases(),
                             [&](const TestCase& test) { return name == test.name; })) {
      return Fail(Error(Code::kInvalidArgument, "--only: there is no test {}: want one of {}", name,
                        TestCaseNames()));
    }
  }
  Result<kube::Config> config = ConfigOf(options.cluster);
  if (!config.ok()) return Fail(config.status());
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return SelfTest(options, *std::move(style), *std::move(config)).Run();
}

}  // namespace

Action AddTest(CLI::App* app) {
  auto options = std::make_shared<TestOptions>();
  app->add_option("--image", options->image,
                  "image of the test pods: its entrypoint is the program samples/vectoradd")
      ->capture_default_str();
  app->add_option("--image-pull-policy", options->pull_policy, "image pull policy of the test pods")
      ->check(CLI::IsMember({"Always", "IfNotPresent", "Never"}))
      ->capture_default_str();
  app->add_option("--only", options->selected_cases, "only these tests: " + TestCaseNames())
      ->delimiter(',')
      ->option_text("NAME,...");
  app->add_option("--case-timeout", options->case_timeout_s, "seconds for each test")
      ->check(CLI::Range(5, 3600))
      ->capture_default_str();
  app->add_flag("--keep", options->keeps_namespace, "leave the namespace and its pods");
  AddOutputOption(app, &options->style);
  AddClusterOptions(app, &options->cluster);
  app->footer("Exit codes: 0 no test failed; 1 at least one test failed; 130 interrupted.");
  return [options] { return RunTest(*options); };
}

}  // namespace tessera::cli
