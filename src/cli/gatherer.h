// SPDX-License-Identifier: Apache-2.0
// Reads many objects, collections and pages of a cluster at once, for commands that look at all of
// it (doctor, sysdump, version, test). Wait runs the runner until all have arrived, so such a
// command is a plain sequence.
//
// Threads: the thread that calls Wait. Bounds: kParallel requests at once; each has `patience`.
// Included only in src/cli.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/cli/options.h"
#include "src/kube/client.h"
#include "src/net/io_thread.h"

namespace tessera::cli {

class Gatherer {
 public:
  static constexpr size_t kParallel = 8;
  // A collection may have this many objects; the rest is left out.
  static constexpr size_t kMaxObjects = 50'000;

  Gatherer(kube::Config config, const ClusterOptions& options, Duration patience);
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // Each writes its answer into `*into`, which must live until Wait returns.
  void List(kube::ListQuery query, Result<std::vector<Json>>* into);
  void Get(kube::ObjectRef object, Result<Json>* into);
  // A page of a pod of tessera-system, through the API server.
  void Page(const std::string& pod, std::string_view port, std::string_view path,
            Result<std::string>* into);
  // Any path of the API server, as text; at most `max_bytes`, the rest is dropped.
  void Text(std::string target, size_t max_bytes, Result<std::string>* into);

  // Returns when everything has arrived, or after `limit`, when what is missing is
  // DEADLINE_EXCEEDED.
  void Wait(Duration limit = std::chrono::minutes(10));

  // For writes between two calls of Wait.
  using Start = std::function<kube::Operation(std::function<void()> done)>;
  void Add(Start start);
  kube::Client& client() { return client_; }
  EpollTaskRunner& runner() { return runner_; }

 private:
  void ListPage(const kube::ListQuery& query, Result<std::vector<Json>>* into,
                std::function<void()> done);
  void StartNext();

  const Duration patience_;
  EpollTaskRunner runner_;
  net::IoThread io_;
  kube::Client client_;
  std::deque<Start> waiting_;
  size_t active_ = 0;
  std::vector<kube::Operation> operations_;
  WeakPtrFactory<Gatherer> weak_{this};
};

}  // namespace tessera::cli
