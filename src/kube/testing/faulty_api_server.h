// SPDX-License-Identifier: Apache-2.0
// For tests: an API server with pods that injects faults, drawn from a seed. A real server cannot
// split frames at every byte, stall or half-close inside an event, answer 410, 429 and 500 on
// demand, or send garbage or oversized frames. apiserver_test.cc tests the same behavior without
// faults on a real API server.
//
// Serves one connection at a time: one watch and its lists. Threads: any.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "src/kube/objects.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube::testing {

class FaultyApiServer {
 public:
  explicit FaultyApiServer(uint64_t seed);
  ~FaultyApiServer();

  net::Url url() const { return server_->url(); }
  // Percentage of responses and events with a fault; 0: none.
  void SetFaults(int percent) { fault_percent_ = percent; }

  // Creates or changes the pod; the server sets the version.
  void Put(PodObject pod);
  void Remove(const std::string& key);
  std::map<std::string, PodObject> Objects() const;
  // Number of injected faults by kind.
  std::map<std::string, int> counts() const;

 private:
  using State = std::map<std::string, PodObject>;
  struct Event {
    int64_t version;
    bool removed;
    PodObject pod;
  };
  struct Query {
    std::string target;
    bool protobuf;
    std::string Param(const std::string& name) const;
  };
  class Stream;

  void Serve(int fd);
  bool Answer(int fd, const Query& query);
  bool AnswerList(int fd, const Query& query);
  bool AnswerWatch(int fd, const Query& query);
  bool InjectAnswerFault(int fd);
  bool SendInitial(Stream& stream, int64_t* version);
  bool SendChanges(Stream& stream, int64_t* version);
  bool InjectStreamFault(Stream& stream);
  const State& StateAt(int64_t version);
  uint64_t Draw(uint64_t bound);
  // Draws and counts the fault to inject now; "" for none.
  std::string DrawFault(const std::vector<std::string>& kinds);
  void WaitForClose(int fd) const;

  std::atomic<int> fault_percent_{0};
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;  // guards state shared by the test and the server's thread
  Random random_;
  std::vector<Event> log_;  // log_[i] created version i + 2
  int64_t version_ = 1;
  State state_;
  // The state at listed_version_, from which list pages are served.
  State listed_state_;
  int64_t listed_version_ = 0;
  int64_t oldest_version_ = 0;  // versions below this one are expired
  std::map<std::string, int> counts_;
  std::unique_ptr<net::testing::RawServer> server_;
};

}  // namespace tessera::kube::testing
