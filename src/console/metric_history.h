// SPDX-License-Identifier: Apache-2.0
// Curves of a node's GPUs over hours, from a Prometheus that scrapes the agents. The console itself
// keeps no metrics.
//
// Credentials are read from their files for each request, so that they may be rotated.
//
// Threads: the runner's. Bounds: kMaxReads at once, kPoints values in each curve, kMaxBytes for
// each answer of Prometheus.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/formats/json.h"
#include "src/net/http_client.h"

namespace tessera::console {

struct PrometheusOptions {
  net::HttpClient::Options client;
  // Sent as a bearer token; "": none.
  std::string token_file;
  // A folder with files `username` and `password`, such as a mounted Secret of type
  // kubernetes.io/basic-auth; "": none. At most one of token_file and basic_auth_dir is set.
  std::string basic_auth_dir;
};

// The value of the Authorization header for Prometheus; "": none. An error names the flag.
Result<std::string> PrometheusAuthorization(const PrometheusOptions& options);

class MetricHistory {
 public:
  static constexpr size_t kMaxReads = 32;
  static constexpr int64_t kPoints = 240;
  static constexpr size_t kMaxBytes = 8 << 20;
  static constexpr std::chrono::hours kMaxSpan = std::chrono::hours(24 * 30);
  using Done = std::function<void(Result<Json>)>;

  MetricHistory(net::IoThread& io, TaskRunner& runner, PrometheusOptions options);

  // Reads the last `span`. Calls `done` once, later, but not after this object is destroyed, with
  // {"start":1700000000,"step":90,"gpus":{"GPU-…":{"utilization":[37.5,null],"memory":[…],
  // "temperature":[…],"power":[…]}}}: percent, MiB, degrees Celsius, watts; each value is the mean
  // of a step, null if Prometheus has none. UNAVAILABLE: Prometheus does not answer.
  // FAILED_PRECONDITION: Prometheus rejects the credentials, or their files cannot be read.
  // RESOURCE_EXHAUSTED: too many reads at once. REQUIRES: 1 hour ≤ span ≤ kMaxSpan.
  void Read(const std::vector<std::string>& uuids, std::chrono::hours span, Done done);

 private:
  struct CurveRequest {
    Done done;
    std::string authorization;    // "": none
    int64_t start = 0, step = 0;  // seconds; `start` is a Unix time
    Json gpus;
    size_t unanswered = 0;
    std::vector<net::HttpCall> calls;
  };
  using RequestNumber = uint64_t;

  void Query(RequestNumber number, std::string_view field, const std::string& query);
  void OnAnswer(RequestNumber number, std::string_view field, const Result<net::Response>& answer);
  void Finish(RequestNumber number, Result<Json> answer);

  TaskRunner& runner_;
  const PrometheusOptions options_;
  net::HttpClient client_;
  RequestNumber last_number_ = 0;
  std::map<RequestNumber, CurveRequest> requests_;
  WeakPtrFactory<MetricHistory> weak_{this};
};

// Adds the series of an answer of Prometheus (/api/v1/query_range) to `gpus`, as curves of `field`
// with `points` values. INVALID_ARGUMENT, or the error that Prometheus reports.
Status AddCurves(std::string_view answer, std::string_view field, int64_t start, int64_t step,
                 int64_t points, Json* gpus);

}  // namespace tessera::console
