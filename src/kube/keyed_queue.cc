// SPDX-License-Identifier: Apache-2.0
#include "src/kube/keyed_queue.h"

#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "src/kube/backoff.h"

namespace tessera::kube {

struct KeyedQueue::Core : public std::enable_shared_from_this<KeyedQueue::Core> {
  struct State {
    bool queued = false;  // is in `queue`
    bool running = false;
    std::optional<MonotonicTime> delayed_until;  // time of a pending timer
    int failures = 0;
  };

  Core(TaskRunner& r, Options o, Work w) : runner(r), options(o), work(std::move(w)) {}

  void Add(const std::string& key) {
    State& state = states[key];
    state.delayed_until.reset();
    if (state.queued) return;
    state.queued = true;
    queue.push_back(key);
    ScheduleStart();
  }

  void AddAfter(const std::string& key, Duration delay) {
    if (delay <= Duration::zero()) return Add(key);
    State& state = states[key];
    const MonotonicTime when = runner.clock().Now() + delay;
    if (state.queued || (state.delayed_until && *state.delayed_until <= when)) return;
    state.delayed_until = when;
    runner.PostDelayed(delay, [weak = weak_from_this(), key, when] {
      const auto self = weak.lock();
      if (!self) return;
      const auto found = self->states.find(key);
      // If `delayed_until` differs, an earlier timer has replaced this one.
      if (found != self->states.end() && found->second.delayed_until == when) self->Add(key);
    });
  }

  void ScheduleStart() {
    if (std::exchange(start_posted, true)) return;
    runner.Post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->StartWaitingKeys();
    });
  }

  void StartWaitingKeys() {
    start_posted = false;
    // A key whose work still runs stays in the queue until that work is done.
    for (size_t to_visit = queue.size(); to_visit > 0 && running < options.max_running;
         --to_visit) {
      std::string key = std::move(queue.front());
      queue.pop_front();
      State& state = states[key];
      if (state.running) {
        queue.push_back(std::move(key));
        continue;
      }
      state.queued = false;
      state.running = true;
      ++running;
      Start(key);
      if (closed) return;
    }
  }

  void Start(const std::string& key) {
    // Copies of `done` share the flag, so only the first call counts.
    const auto pending = std::make_shared<bool>(true);
    work(key, [weak = weak_from_this(), key, pending](const Status& status) {
      if (!std::exchange(*pending, false)) return;
      if (const auto self = weak.lock()) self->Finish(key, status);
    });
  }

  void Finish(const std::string& key, const Status& status) {
    State& state = states[key];
    state.running = false;
    --running;
    if (!status.ok()) {
      const Duration wait =
          JitteredWait(options.first_wait, options.longest_wait, state.failures++, random);
      AddAfter(key, wait);
    } else {
      state.failures = 0;
      if (!state.queued && !state.delayed_until) states.erase(key);
    }
    if (!queue.empty()) ScheduleStart();
  }

  TaskRunner& runner;
  const Options options;
  const Work work;
  std::minstd_rand random{std::random_device{}()};
  std::unordered_map<std::string, State> states;
  std::deque<std::string> queue;
  size_t running = 0;
  bool start_posted = false;
  bool closed = false;
};

KeyedQueue::KeyedQueue(TaskRunner& runner, Options options, Work work)
    : core_(std::make_shared<Core>(runner, options, std::move(work))) {}

KeyedQueue::~KeyedQueue() { core_->closed = true; }

void KeyedQueue::Add(const std::string& key) { core_->Add(key); }
void KeyedQueue::AddAfter(const std::string& key, Duration delay) { core_->AddAfter(key, delay); }

size_t KeyedQueue::waiting() const {
  size_t count = 0;
  for (const auto& [key, state] : core_->states)
    count += state.queued || state.delayed_until ? 1 : 0;
  return count;
}
size_t KeyedQueue::running() const { return core_->running; }

}  // namespace tessera::kube
