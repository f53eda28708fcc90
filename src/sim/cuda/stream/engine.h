// SPDX-License-Identifier: Apache-2.0
// Simulates the execution of commands on the GPUs of this process. Streams are queues of commands.
// A command has a duration, an effect on memory, and a condition to wait for.
//
// Time and effect are separate. Simulate() computes from the clock when each command began and
// ended, even if that was earlier. Apply() then carries out the effects (a copy, the results of a
// kernel) in the order in which the commands ended. A command is done when both have happened.
// Threads of the program that query or wait drive the simulation. If none does, a worker thread
// drives the simulation. The worker also runs the program's host functions.
//
// Kernels of one process run concurrently: each takes the part of the GPU that its threads fill.
// If the parts add up to more than the GPU, all take longer. Processes take turns
// (src/sim/turns.h). The record of an event is a command, too: the GPU stamps the event in a turn
// of the process. Copies between host and device need no turn.
//
// Threads: REQUIRES the driver's mutex, which is released while effects and functions of the
// program run.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "api/cuda_abi.h"
#include "src/sim/state.h"
#include "src/sim/turns.h"

namespace tessera::cuda {

// A point in a stream, shared by events, waiting streams and threads.
struct Ticket {
  bool reached = false;  // the GPU reached the point at `at_ns`
  bool done = false;     // also, the effects of all earlier commands are visible
  uint64_t at_ns = 0;
  StreamTag* stream = nullptr;  // null when reached
  double cost_before_ns = 0;    // Queue::pushed_cost_ns at its creation
};
using TicketRef = std::shared_ptr<Ticket>;

inline constexpr uint32_t kWholeGpu = 1024;  // Command::share of a command that fills the GPU
inline constexpr uint64_t kNever = UINT64_MAX;
// GPU time of the record of an event.
inline constexpr double kRecordNs = 1;

struct Command {
  enum class Kind : uint8_t { kCompute, kTransfer, kRecord, kWait, kHost };
  Kind kind = Kind::kCompute;
  uint32_t share = kWholeGpu;       // part of the GPU, if the command needs it
  double remaining_ns = 0;          // remaining time on an otherwise idle GPU
  Result error = Result::kSuccess;  // error of the context when the command ends
  TicketRef ticket;                 // kRecord, kWait
  std::function<void()> effect;     // may be empty
  bool has_waiter = false;          // a thread waits for it, so the worker need not

  // Filled by Engine::Push.
  bool awaits_order = false;  // must wait for streams that the legacy stream orders before it
  uint64_t order = 0;         // number in the process
  uint64_t since_ns = 0;      // time of the program's call
  double cost_ns = 0;         // remaining_ns at the program's call

  // True: the command runs in a turn of the process.
  bool needs_gpu() const {
    return kind == Kind::kCompute || (kind == Kind::kRecord && remaining_ns > 0);
  }
  // True: the worker must end the command in time, because no thread waits for it and its end has
  // an effect outside of its stream.
  bool needs_worker() const {
    return !has_waiter && (effect || (kind != Kind::kCompute && kind != Kind::kRecord));
  }
};

// The queue of a stream.
struct Queue {
  std::deque<Command> commands;
  uint64_t end_ns = 0;            // end of the last removed command
  uint64_t pushed = 0, done = 0;  // commands so far
  double pushed_cost_ns = 0, done_cost_ns = 0;
  // Commands at the head that wait only for the GPU, and their cost.
  size_t ready_commands = 0;
  double ready_ns = 0;
  bool in_host_function = false;
  bool idle() const { return pushed == done; }
};

class Driver;

class Engine {
 public:
  explicit Engine(Driver* driver) : driver_(driver) {}

  // Appends a command to the stream.
  void Push(StreamTag* stream, Command command);
  // Returns a ticket for the end of the stream, which is done if the stream is idle.
  TicketRef EndTicket(StreamTag* stream) { return PushTicket(stream, 0, {}); }
  // Records an event and returns a ticket for it. `effect` runs when the stream reaches the record.
  TicketRef Record(StreamTag* stream, std::function<void()> effect = {}) {
    return PushTicket(stream, kRecordNs, std::move(effect));
  }
  // Marks a ticket without a stream as done.
  void MarkReached(Ticket* ticket);
  // Simulates until now, applies effects, and deletes idle abandoned streams. Releases the lock
  // while effects run.
  void Advance(std::unique_lock<std::mutex>* lock);
  // Sleeps without the lock until the ticket may be done, at most 10 ms. The caller then checks the
  // ticket and the health of the context.
  void Sleep(std::unique_lock<std::mutex>* lock, const Ticket& ticket);
  // Waits until the stream has room for a command, its context is dead, or another thread has
  // destroyed the stream.
  void WaitForRoom(StreamTag* stream, std::unique_lock<std::mutex>* lock);

  // Takes over a stream that the program has destroyed, and deletes the stream when it is idle. Its
  // commands still run; the context and its legacy stream wait for them.
  void Abandon(std::unique_ptr<StreamTag> stream);
  // Drops the queued commands of the context's streams. Other streams no longer wait for them.
  void DropContext(ContextTag* context, std::unique_lock<std::mutex>* lock);
  // The order of the oldest command that is not done; UINT64_MAX: all commands are done.
  uint64_t OldestOrder() const;
  uint64_t last_order() const { return last_order_; }

 private:
  // A GPU: its current turn, and the time until which it is simulated.
  struct GpuTimeline {
    std::unique_ptr<sim::Turns> turns;
    sim::Turn turn;
    uint64_t simulated_until_ns = 0;
  };
  // A command whose time has passed and whose effect is due.
  struct DueEffect {
    StreamTag* stream;
    Command command;
  };

  TicketRef PushTicket(StreamTag* stream, double cost_ns, std::function<void()> effect);
  GpuTimeline& TimelineOf(const StreamTag* stream);
  void Simulate(uint64_t now_ns);
  bool EndHeadCommands(StreamTag* stream, uint64_t now_ns);
  bool PredecessorsEnded(const StreamTag* stream, const Command& command, uint64_t* since_ns) const;
  void ExtendReady(StreamTag* stream, uint64_t since_ns);
  void Finish(StreamTag* stream, uint64_t at_ns);
  bool RunGpu(uint32_t gpu, uint64_t now_ns);
  void FindHeads(uint32_t gpu, std::vector<StreamTag*>* heads);
  bool Step(GpuTimeline* gpu, const std::vector<StreamTag*>& heads, uint64_t until_ns);
  static uint64_t EstimateWork(const std::vector<StreamTag*>& heads);
  void Apply(std::unique_lock<std::mutex>* lock, bool host_functions);
  void EndHostFunction(StreamTag* stream);
  void MarkDone(DueEffect* due);
  void DropStream(StreamTag* stream);
  uint64_t EarliestEnd(StreamTag* stream, double cost_ns, uint64_t now_ns, int depth);
  uint64_t EarliestDone(const Ticket& ticket, uint64_t now_ns, int depth);
  void StartWorker();
  void RunWorker();
  void WakeWorker(StreamTag* stream);
  uint64_t NextWorkerDeadline(uint64_t now_ns);

  Driver* const driver_;
  GpuTimeline gpus_[sim::kMaxGpus];
  std::vector<StreamTag*> active_;  // streams with queued commands
  std::vector<std::unique_ptr<StreamTag>> abandoned_;
  std::deque<DueEffect> due_;
  bool applying_ = false;
  uint64_t last_order_ = 0;
  bool worker_started_ = false;
  uint64_t worker_sleeps_until_ns_ = 0;
  // Futexes: sleepers wait for a change.
  std::atomic<uint32_t> progress_{0}, work_{0};
  uint32_t sleepers_ = 0;
  std::vector<StreamTag*> heads_;  // scratch of RunGpu
};

}  // namespace tessera::cuda
