// SPDX-License-Identifier: Apache-2.0
// Sends spans to a collector by OTLP over HTTP with JSON, which needs only an HTTP client
// (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
//
// An unreachable collector never delays a pod: spans wait in a queue of at most kMaxWaiting.
// Further spans are dropped and counted. The tracer sends at most one batch in kInterval. It
// retries a batch if the collector does not answer, or answers 429, 502, 503 or 504. Before the
// retry it waits as long as the Retry-After of 429 or 503 says, but at most kMaxPause. After any
// other error it drops the batch.
//
// Threads: any for Record, otherwise the runner's. The I/O thread, the runner and the metrics must
// outlive the tracer. Idle cost: none.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "src/base/clock.h"
#include "src/base/metrics.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/net/http_client.h"
#include "src/trace/span.h"

namespace tessera::trace {

struct TraceMetrics {
  Counter sent;     // spans that the collector has accepted
  Counter dropped;  // spans beyond kMaxWaiting, or rejected by the collector
};
void WriteMetrics(const TraceMetrics& metrics, MetricsText* text);

class Tracer {
 public:
  static constexpr size_t kMaxWaiting = 4096;
  static constexpr size_t kMaxBatch = 512;
  static constexpr Duration kInterval = std::chrono::seconds(1);
  static constexpr Duration kMaxPause = std::chrono::seconds(30);

  struct Options {
    std::string endpoint;  // of the collector, "http://otel-collector:4318"; spans go to /v1/traces
    std::string service;   // "tessera-scheduler"
    std::string node;      // "": not on a node
  };
  // INVALID_ARGUMENT: the endpoint is not an http or https URL. NOT_FOUND: the endpoint is https,
  // and the system has no certificates.
  static Result<std::unique_ptr<Tracer>> Start(net::IoThread& io, TaskRunner& runner,
                                               TraceMetrics& metrics, Options options);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  void Record(PodSpan span);
  // A function that calls Record. It must not be called after the tracer is destroyed.
  SpanRecorder recorder() {
    return [this](PodSpan span) { Record(std::move(span)); };
  }

 private:
  Tracer(net::IoThread& io, TaskRunner& runner, TraceMetrics& metrics,
         net::HttpClient::Options client, Options options);
  void Add(PodSpan span);
  void ScheduleSend(Duration pause = kInterval);
  void Send();
  void OnAnswer(const Result<net::Response>& answer);

  TaskRunner& runner_;
  TraceMetrics& metrics_;
  const Options options_;
  net::HttpClient client_;
  net::HttpCall call_;
  std::deque<PodSpan> waiting_;
  size_t batch_size_ = 0;  // how many spans of `waiting_` are being sent
  bool send_scheduled_ = false;
  uint64_t span_id_seed_;
  MonotonicTime next_warning_{};
  WeakPtrFactory<Tracer> weak_{this};
};

}  // namespace tessera::trace
