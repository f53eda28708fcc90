// SPDX-License-Identifier: Apache-2.0
// Measures the scheduler extender at its socket. There are N nodes of 8 GPUs; on each node four
// GPUs are held by one pod each. Pods of several kinds come one after the other, as from
// kube-scheduler: filter over all nodes, prioritize over the nodes that fit, and bind while the
// next pod is decided. Bindings go to a stand-in for the API server, which answers at once.
// Everything runs in one process, the callers included. Requests are built before the time starts.
// Answers are read to their end within the time, but parsed after it. "null" is GET /version: the
// cost of sockets and threads. "CPU" is the time of the threads that answer, for all three verbs of
// a pod.
//   extender_bench [--pods P, 2000] [N …, 100 1213 5000]
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/random.h"
#include "src/base/strings.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/testing/objects.h"
#include "src/scheduler/binder.h"
#include "src/scheduler/extender.h"
#include "src/scheduler/verbs.h"
#include "tests/bench/extender_caller.h"

namespace tessera::scheduler {
namespace {

using Steady = std::chrono::steady_clock;
using bench::BestIn;
using bench::ExtenderCaller;
using bench::NamesIn;
constexpr int kGpus = 8;
constexpr int kBinders = 8;           // concurrent bindings
constexpr size_t kRunningPods = 200;  // pods of the load that run at one time

double MemoryMiB() {
  const std::string status = ReadFile("/proc/self/status").value();
  return std::atof(status.c_str() + status.find("VmRSS:") + 6) / 1024;
}

// A runner on a thread of its own.
class RunnerThread {
 public:
  explicit RunnerThread(const char* name) : thread_([this] { runner_.Run(); }) {
    ::pthread_setname_np(thread_.native_handle(), name);
  }
  ~RunnerThread() {
    runner_.Quit();
    thread_.join();
  }
  EpollTaskRunner& runner() { return runner_; }
  // Runs the task on that thread and waits for its end.
  void RunAndWait(const std::function<void()>& task) {
    std::mutex mutex;
    std::condition_variable done_changed;
    bool done = false;
    runner_.Post([&] {
      task();
      const std::lock_guard lock(mutex);
      done = true;
      done_changed.notify_all();
    });
    std::unique_lock lock(mutex);
    done_changed.wait(lock, [&] { return done; });
  }

 private:
  EpollTaskRunner runner_;
  std::thread thread_;
};

// The scheduler's parts around one ledger, on a thread of their own.
class Server {
 public:
  explicit Server(int nodes) {
    RunnerThread& api = api_thread_;
    api.RunAndWait([&] {
      api_server_ = std::make_unique<kube::testing::FakeApiServer>(api_io_, api.runner());
      api_server_->SetFault([](const net::Request&, const net::HttpServer::Reply& reply) {
        reply({201,
               {{"Content-Type", "application/json"}},
               R"({"kind":"Status","status":"Success","code":201})"});
        return true;
      });
    });
    main_.RunAndWait([&] { Start(nodes); });
  }
  ~Server() {
    main_.RunAndWait([&] {
      http_.reset();
      extender_.reset();
      binder_.reset();
      api_.reset();
      client_.reset();
    });
    api_thread_.RunAndWait([&] { api_server_.reset(); });
  }
  const net::Address& address() const { return http_->address(); }
  void OnRunner(std::function<void()> task) { main_.runner().Post(std::move(task)); }
  ledger::ClusterLedger& ledger() { return *ledger_; }
  Binder& binder() { return *binder_; }
  // Adds a pod to those that an informer would have received.
  void AddToInformer(const kube::PodObject& pod) {
    informer_pods_[pod.meta.ns + "/" + pod.meta.name] = pod;
  }
  void RemovePod(const kube::PodObject& pod) {
    informer_pods_.erase(pod.meta.ns + "/" + pod.meta.name);
    ledger_->RemovePod(pod.meta.uid);
    binder_->OnPodGone(pod.meta.uid);
  }

 private:
  void Start(int nodes) {
    EpollTaskRunner& runner = main_.runner();
    ledger_ = ledger::ClusterLedger::Make({}, &runner.clock()).value();
    for (int n = 0; n < nodes; ++n) {
      const std::string name = fmt::format("node-{:05}", n);
      ledger_->SetNode(ledger::testing::GpuNode(name, kGpus));
      for (int i = 0; i < kGpus / 2; ++i) {
        ledger::testing::Bind(*ledger_, ledger::testing::Whole(fmt::format("old-{}-{}", n, i)),
                              name);
      }
    }
    client_ = std::make_unique<kube::Client>(
        io_, runner, api_server_->config(),
        kube::ClientOptions{.max_in_flight = 32, .max_waiting = 4096});
    api_ = std::make_unique<KubeBindingApi>(*client_);
    binder_ = std::make_unique<Binder>(*ledger_, *api_, runner.clock(), [] { return true; });
    extender_ = std::make_unique<Extender>(
        *ledger_, *binder_, runner.clock(), metrics_,
        [this](const std::string& key) {
          const auto found = informer_pods_.find(key);
          return found == informer_pods_.end() ? nullptr : &found->second;
        },
        [](const kube::PodObject&, kube::EventKind, std::string_view, const std::string&) {},
        HoldOptions{});
    AddVerbs(
        [this]() -> Result<ActiveTerm> {
          return ActiveTerm{extender_.get(), ledger_.get()};
        },
        runner.clock(), metrics_, nullptr, &router_);
    net::HttpServer::Options options{.address = {.host = "127.0.0.1"}, .limits = {}, .tls = {}};
    options.limits.max_body_bytes = 48 << 20;
    http_ = net::HttpServer::Start(io_, runner, options, router_.AsHandler()).value();
  }

  net::IoThread api_io_{"stand-in-net"}, io_{"net"};
  RunnerThread api_thread_{"stand-in"}, main_{"scheduler"};
  std::unique_ptr<kube::testing::FakeApiServer> api_server_;
  std::unique_ptr<net::HttpServer> http_;
  std::map<std::string, kube::PodObject> informer_pods_;
  SchedulerMetrics metrics_;
  Router router_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<KubeBindingApi> api_;
  std::unique_ptr<Binder> binder_;
  std::unique_ptr<Extender> extender_;
};

// A waiting pod that requests a share, or one, two or four GPUs.
kube::PodObject PodOf(Random& random, int number) {
  static const std::vector<std::pair<std::string_view, std::string>> kinds = {
      {names::kResourceGpuMem, "20"},
      {names::kResourceGpuMem, "8"},
      {names::kResourceGpu, "1"},
      {names::kResourceGpu, "2"},
      {names::kResourceGpu, "4"}};
  const auto& [resource, amount] = kinds[random.Below(kinds.size())];
  kube::PodObject pod = kube::testing::SamplePod(random, number);
  pod.meta.name = fmt::format("new-{}", number);
  pod.meta.ns = "ns";
  pod.meta.uid = Uid(fmt::format("uid-new-{}", number));
  pod.meta.annotations.clear();
  pod.meta.deleting = false;
  pod.node_name.clear();
  pod.phase = kube::PodPhase::kPending;
  pod.containers.resize(1);
  pod.containers[0].kind = kube::ContainerKind::kMain;
  pod.containers[0].limits = {{std::string(resource), amount}};
  pod.containers[0].requests = pod.containers[0].limits;
  return pod;
}

struct Times {
  std::vector<double> ms;
  double At(double q) {
    if (ms.empty()) return 0;
    std::sort(ms.begin(), ms.end());
    return ms[std::min(ms.size() - 1, static_cast<size_t>(q * static_cast<double>(ms.size())))];
  }
};

// Processor time of the threads that answer, since their start.
double ServerCpuMillis() {
  double millis = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string name = ReadFile((task.path() / "comm").string()).value_or("");
    if (name != "scheduler\n" && name != "net\n") continue;
    millis += std::atof(ReadFile((task.path() / "schedstat").string()).value_or("").c_str()) / 1e6;
  }
  return millis;
}

// NodeNames in several orders, because kube-scheduler's workers append the nodes that passed its
// own filters piece by piece.
std::vector<std::string> OrdersOf(int nodes, Random& random) {
  constexpr int kPiece = 71;
  std::vector<std::string> pieces;
  for (int n = 0; n < nodes; ++n) {
    if (n % kPiece == 0) pieces.emplace_back();
    pieces.back() += fmt::format("\"node-{:05}\",", n);
  }
  std::vector<std::string> orders;
  for (int i = 0; i < 8; ++i) {
    for (size_t k = pieces.size() - 1; k > 0; --k)
      std::swap(pieces[k], pieces[random.Below(k + 1)]);
    std::string& order = orders.emplace_back("[");
    for (const std::string& piece : pieces) order += piece;
    order.back() = ']';
  }
  return orders;
}

double Millis(Steady::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

// Sends bindings while other pods are decided, each caller on a connection of its own.
class BindCallers {
 public:
  BindCallers(Server& server, Times& times) : server_(server), times_(times) {
    for (int i = 0; i < kBinders; ++i) {
      threads_.emplace_back([this] { Work(); });
      ::pthread_setname_np(threads_.back().native_handle(), "binder");
    }
  }
  ~BindCallers() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Add(kube::PodObject pod, std::string node) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.size() < kBinders; });
    waiting_.emplace_back(std::move(pod), std::move(node));
    changed_.notify_all();
  }
  int failed() const { return failed_; }

 private:
  void Work() {
    ExtenderCaller caller(server_.address());
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const auto [pod, node] = std::move(waiting_.front());
      waiting_.pop_front();
      changed_.notify_all();
      lock.unlock();
      const auto start = Steady::now();
      const std::string answer(caller.Bind(pod.meta.ns, pod.meta.name, pod.meta.uid, node));
      const double took = Millis(Steady::now() - start);
      if (answer != R"({"Error":""})") {
        if (++failed_ == 1) std::fprintf(stderr, "bind: %s\n", answer.c_str());
      }
      lock.lock();
      times_.ms.push_back(took);
      bound_.push_back(pod);
      if (bound_.size() <= kRunningPods) continue;
      server_.OnRunner([this, old = bound_.front()] { server_.RemovePod(old); });
      bound_.pop_front();
    }
  }

  Server& server_;
  Times& times_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<kube::PodObject, std::string>> waiting_;
  std::deque<kube::PodObject> bound_;
  bool closed_ = false;
  std::atomic<int> failed_{0};
  std::vector<std::thread> threads_;
};

void Measure(int nodes, int pods) {
  const double before = MemoryMiB();
  Server server(nodes);
  const double filled = MemoryMiB() - before;
  Random random(1);
  std::vector<kube::PodObject> arriving;
  std::vector<std::string> texts;
  for (int i = 0; i < pods; ++i) {
    arriving.push_back(PodOf(random, i));
    texts.push_back(kube::testing::JsonOf(arriving.back()));
  }
  const std::vector<std::string> orders = OrdersOf(nodes, random);
  Times null, filter, prioritize, both, bind;
  ExtenderCaller caller(server.address());
  int unplaced = 0, failed = 0;
  for (int i = 0; i < 500; ++i) {
    const auto t0 = Steady::now();
    caller.Get("/version");
    null.ms.push_back(Millis(Steady::now() - t0));
  }
  const auto start = Steady::now();
  const double cpu = ServerCpuMillis();
  {
    BindCallers binders(server, bind);
    for (int i = 0; i < pods; ++i) {
      const kube::PodObject& pod = arriving[i];
      server.OnRunner([&server, &pod] { server.AddToInformer(pod); });
      const auto t0 = Steady::now();
      const std::string_view filtered = caller.Filter(texts[i], orders[i % orders.size()]);
      const auto t1 = Steady::now();
      const std::string names(NamesIn(filtered));
      const auto t2 = Steady::now();
      const std::string_view scored = caller.Prioritize(texts[i], names);
      const auto t3 = Steady::now();
      filter.ms.push_back(Millis(t1 - t0));
      prioritize.ms.push_back(Millis(t3 - t2));
      both.ms.push_back(Millis((t1 - t0) + (t3 - t2)));
      std::string node(BestIn(scored));
      node.empty() ? void(++unplaced) : binders.Add(pod, std::move(node));
    }
    failed = binders.failed();
  }
  const double millis = Millis(Steady::now() - start);
  std::printf(
      "%6d %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f %7.0f %6d %7.1f "
      "%7.1f\n",
      nodes, null.At(.5), null.At(.99), filter.At(.5), filter.At(.99), prioritize.At(.5),
      prioritize.At(.99), both.At(.5), both.At(.99), bind.At(.5), bind.At(.99),
      (ServerCpuMillis() - cpu) / pods, (pods - unplaced) / millis * 1e3, unplaced + failed, filled,
      MemoryMiB());
}

int Main(int argc, char** argv) {
  int pods = 2000;
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--pods" && i + 1 < argc) {
      pods = std::atoi(argv[++i]);
    } else if (const auto nodes = ParseInt(argv[i]); nodes.ok() && *nodes > 0) {
      sizes.push_back(static_cast<int>(*nodes));
    } else {
      std::fprintf(stderr, "usage: extender_bench [--pods P] [NODES …]\n");
      return 2;
    }
  }
  if (sizes.empty()) sizes = {100, 1213, 5000};
  std::printf("%d pods; milliseconds; memory in MiB: of the ledger, and of the process\n", pods);
  std::printf("%6s %15s %15s %15s %15s %15s %7s %7s %6s %7s %7s\n", "nodes", "null p50 p99",
              "filter", "prioritize", "both", "bind", "CPU/pod", "pods/s", "failed", "ledger",
              "RSS");
  for (const int nodes : sizes) Measure(nodes, pods);
  return 0;
}

}  // namespace
}  // namespace tessera::scheduler

int main(int argc, char** argv) { return tessera::scheduler::Main(argc, argv); }
