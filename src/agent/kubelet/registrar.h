// SPDX-License-Identifier: Apache-2.0
// Keeps one device plugin registered with the kubelet while the kubelet starts, stops, restarts or
// forgets the plugin, or the plugin's socket is removed.
//
//   no kubelet.sock            wait for it (inotify); no polling
//   kubelet.sock appears       register at once, then every 10 ms for two seconds, because the
//                              socket exists before the kubelet listens; then with pauses that
//                              grow to 1 s
//   registered, stream open    nothing to do
//   last stream ends           register again with the same back-off. Kubelets up to 1.36 drop the
//                              new plugin when the stream of an old one ends late, so an end right
//                              after registering is normal; the pauses grow until a stream lasts
//   plugin's socket vanishes   listen again under the same name; open streams continue, so the
//                              kubelet notices nothing
// Streams are closed before a registration with another kubelet, never while the kubelet uses them.
//
// Threads: lives on `runner`. The content of answers is in plugin_answers.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/agent/kubelet/kubelet.h"
#include "src/agent/kubelet/kubelet_metrics.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"

namespace tessera::agent {

// The plugin's server, as the registrar uses it.
class PluginEndpoint {
 public:
  virtual ~PluginEndpoint() = default;
  // Serves new connections on a new socket instead of the earlier one. Replaces a file at its path.
  virtual Status Listen() = 0;
  // Whether the file at that path is still the socket of the last Listen.
  virtual bool SocketPresent() const = 0;
  // Ends all streams; a peer that still reads gets status OK.
  virtual void CloseStreams() = 0;
  // The number of open streams, according to the events that the runner has received.
  virtual int open_streams() const = 0;
};

class Registrar {
 public:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(10);
  static constexpr Duration kLongestPause = std::chrono::seconds(1);
  // A starting kubelet listens within this time after its socket has appeared.
  static constexpr Duration kStartupTime = std::chrono::seconds(2);
  // A stream of this age proves that the registration lasts.
  static constexpr Duration kStableAge = std::chrono::seconds(5);
  // The kubelet opens its stream right after registering. The wait is short if a stream has ended
  // meanwhile, because that may have been the new stream.
  static constexpr Duration kStreamWait = std::chrono::seconds(5);
  static constexpr Duration kShortStreamWait = std::chrono::milliseconds(250);

  // The arguments must outlive the object. Calls `on_change`, unless it is null, when registered()
  // changes.
  Registrar(TaskRunner* runner, KubeletRegistry* kubelet, PluginEndpoint* endpoint,
            Registration registration, KubeletMetrics* metrics, std::function<void()> on_change);
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // Listens and registers, or waits for a kubelet.
  void Start();

  // Events. Safe before Start, when they do nothing.
  void OnKubeletSocketAppeared();
  void OnPluginSocketVanished();
  void OnStreamOpened();
  void OnStreamClosed();
  // Call when events of the directory may have been lost.
  void OnRescan();

  // Whether the kubelet has accepted the plugin and reads its list.
  bool registered() const { return registered_; }

 private:
  void EnsureListening();
  void TryRegister();
  void ScheduleRetry(Code reason);
  void OnRegistered(const Status& status);
  void UpdateRegistered();
  // Runs `task` after `delay`, unless the registrar was destroyed or the attempt that posted the
  // task has ended by then.
  void PostForAttempt(Duration delay, std::function<void()> task);

  TaskRunner* const runner_;
  KubeletRegistry* const kubelet_;
  PluginEndpoint* const endpoint_;
  const Registration registration_;
  KubeletMetrics* const metrics_;
  const std::function<void()> on_change_;

  bool started_ = false;
  bool listened_ = false;     // a call of Listen has succeeded
  std::string listen_error_;  // of the last call of Listen; "": it succeeded
  bool listen_retry_scheduled_ = false;
  bool in_flight_ = false;
  bool accepted_ = false;  // the last registration was accepted and its streams have not ended
  bool registered_ = false;
  bool stream_ended_in_flight_ = false;
  uint64_t attempt_ = 0;  // tasks of earlier attempts do nothing
  Duration pause_ = kFirstPause;
  MonotonicTime starting_until_{};
  std::string tried_kubelet_;  // identity of the kubelet's socket at the latest attempt
  std::string known_kubelet_;  // the kubelet that accepted the plugin last
  WeakPtrFactory<Registrar> weak_{this};
};

}  // namespace tessera::agent
