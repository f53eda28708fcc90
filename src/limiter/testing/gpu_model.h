// SPDX-License-Identifier: Apache-2.0
// For tests: a GPU in virtual time that processes share. Contexts with work take turns of a
// quantum. A kernel is interrupted at the end of a turn and continues in the next turn of its
// context. The streams of a context run concurrently and divide its turns. Times are nanoseconds.
// Deterministic by seed.
//
// The order of turns and the time of event stamps are assumptions, not measured on a real GPU.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace tessera::limiter::testing {

struct GpuModelOptions {
  int64_t quantum = 2'000'000;
  int64_t switch_cost = 10'000;  // of a switch between contexts
  int64_t event_cost = 1'500;    // of a pair of events, on the GPU
  int64_t event_spread = 300;    // the cost is uniform within event_cost +- event_spread
  bool early_stamps = false;     // an event recorded into an idle stream is stamped at once
  uint64_t seed = 1;
};

class GpuModel {
 public:
  static constexpr int kMaxQueued = 1024;  // launches of a context that the driver queues
  static constexpr int64_t kPending = -1;

  explicit GpuModel(const GpuModelOptions& options) : options_(options), random_(options.seed) {}

  int AddContext(int streams, int events);
  // Ends all work of a context, as if its process had died.
  void Kill(int context);

  void Launch(int context, int stream, int64_t length);
  void Record(int context, int stream, int event);
  // The time at which the GPU reached the event, or kPending.
  int64_t Stamp(int context, int event) const { return contexts_[context].stamps[event]; }

  int contexts() const { return int(contexts_.size()); }
  int queued(int context) const { return contexts_[context].queued; }
  int64_t used(int context) const { return contexts_[context].used; }
  // GPU time of all queued and running work.
  int64_t backlog(int context) const { return contexts_[context].backlog; }
  int64_t now() const { return now_; }

  // Runs until `time`, or until a launch of a watched context ends.
  void RunUntil(int64_t time);
  void Watch(int context, bool watched) { contexts_[context].watched = watched; }

 private:
  struct Command {
    int64_t remaining;  // GPU time
    int event;          // -1: a kernel
  };
  struct Context {
    std::vector<std::deque<Command>> streams;
    std::vector<int64_t> stamps;
    int queued = 0, busy_streams = 0;  // launches; streams with commands
    int64_t used = 0, backlog = 0;
    bool watched = false;
  };

  void Push(int context, int stream, const Command& command);
  bool RunTurn(int64_t until);  // true: a watched launch has ended
  bool NextTurn();
  bool EndCommand(Context* context, std::deque<Command>* stream);

  const GpuModelOptions options_;
  std::mt19937_64 random_;
  std::vector<Context> contexts_;
  int64_t now_ = 0, turn_end_ = 0, switch_left_ = 0;
  int current_ = -1;
};

}  // namespace tessera::limiter::testing
