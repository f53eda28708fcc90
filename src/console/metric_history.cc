// SPDX-License-Identifier: Apache-2.0
#include "src/console/metric_history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/base64.h"

namespace tessera::console {
namespace {

struct Curve {
  const char* field;
  std::string_view metric;       // of dcgm-exporter
  std::string_view aggregation;  // over the series of one GPU
};
// A shared GPU has a series for each container and one for the rest.
constexpr Curve kCurves[] = {
    {"utilization", "DCGM_FI_DEV_GPU_UTIL", "sum"},
    {"memory", "DCGM_FI_DEV_FB_USED", "sum"},
    {"temperature", "DCGM_FI_DEV_GPU_TEMP", "max"},
    {"power", "DCGM_FI_DEV_POWER_USAGE", "max"},
};
constexpr int64_t kMinSampleSeconds = 15;
constexpr net::Deadlines kDeadlines{.connect = std::chrono::seconds(3),
                                    .header = std::chrono::seconds(10),
                                    .body = std::chrono::seconds(10)};

// Whether the UUID may be inserted into a query. UUIDs come from annotations of nodes.
bool IsPlain(std::string_view uuid) {
  return !uuid.empty() && std::ranges::all_of(uuid, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
  });
}

// Several Prometheus jobs may scrape the same agent, so the largest of their values counts.
std::string QueryOf(const Curve& curve, std::string_view uuids, int64_t step) {
  return fmt::format(
      "max by (UUID) (avg_over_time({} by (UUID, instance, job) ({}{{UUID=~\"{}\"}})[{}s:{}s]))",
      curve.aggregation, curve.metric, uuids, step, std::max(kMinSampleSeconds, step / 10));
}

Result<std::string> ReadCredential(const std::string& file) {
  constexpr size_t kMaxCredentialBytes = 64 << 10;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxCredentialBytes));
  const std::string credential(Trim(text));
  // A control character would end the header field or be cut off.
  if (credential.empty() || std::ranges::any_of(credential, [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      })) {
    return Error(Code::kFailedPrecondition, "{} must contain exactly one line of text", file);
  }
  return credential;
}

Result<std::string> ReadBasicAuth(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string user, ReadCredential(folder + "/username"));
  ASSIGN_OR_RETURN(const std::string password, ReadCredential(folder + "/password"));
  return "Basic " + Base64Encode(user + ":" + password);
}

Status CheckStatus(int status) {
  if (status == 401 || status == 403) {
    return Error(Code::kFailedPrecondition,
                 "status {}: check --prometheus-token-file or --prometheus-basic-auth-dir", status);
  }
  return status < 500 ? Status::Ok() : Error(Code::kUnavailable, "status {}", status);
}

Status ErrorOf(const Json& answer) {
  if (answer.StringAt("status").value_or("") == "success") return Status::Ok();
  return Error(Code::kInvalidArgument, "Prometheus rejects the query: {}",
               answer.StringAt("error").value_or("no reason given"));
}

// Prometheus sends numbers as JSON strings, because a number may be "NaN".
Json NumberOf(const Json& value) {
  if (!value.is_string()) return {};
  const std::string& text = value.string_value();
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || !std::isfinite(number)) return {};
  return Json::NumberText(fmt::format("{:.4g}", number));
}

}  // namespace

Result<std::string> PrometheusAuthorization(const PrometheusOptions& options) {
  Result<std::string> field = std::string();
  std::string_view flag;
  if (!options.token_file.empty()) {
    flag = "--prometheus-token-file";
    field = ReadCredential(options.token_file);
    if (field.ok()) field = "Bearer " + *field;
  } else if (!options.basic_auth_dir.empty()) {
    flag = "--prometheus-basic-auth-dir";
    field = ReadBasicAuth(options.basic_auth_dir);
  }
  if (field.ok()) return field;
  // The administrator provides the file: its error must not look like a missing right of the user.
  return Error(Code::kFailedPrecondition, "{}: {}", flag, field.status().message());
}

MetricHistory::MetricHistory(net::IoThread& io, TaskRunner& runner, PrometheusOptions options)
    : runner_(runner), options_(std::move(options)), client_(io, runner, options_.client) {}

void MetricHistory::Read(const std::vector<std::string>& uuids, std::chrono::hours span,
                         Done done) {
  if (requests_.size() >= kMaxReads) {
    return done(
        Error(Code::kResourceExhausted, "too many pages read curves now: retry in a moment"));
  }
  Result<std::string> authorization = PrometheusAuthorization(options_);
  if (!authorization.ok()) return done(authorization.status());
  std::string names;
  for (const std::string& uuid : uuids) {
    if (IsPlain(uuid)) names += names.empty() ? uuid : "|" + uuid;
  }
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(runner_.clock().WallNow().time_since_epoch())
          .count();
  const RequestNumber number = ++last_number_;
  CurveRequest& request = requests_[number];
  request.done = std::move(done);
  request.authorization = *std::move(authorization);
  request.step = std::chrono::seconds(span).count() / kPoints;
  // Starts at a multiple of the step: successive reads then return the same points, and curves do
  // not flicker.
  request.start = now / request.step * request.step - (kPoints - 1) * request.step;
  request.gpus = Json::MakeObject();
  request.unanswered = std::size(kCurves);
  for (const Curve& curve : kCurves) {
    Query(number, curve.field, QueryOf(curve, names, request.step));
  }
}

void MetricHistory::Query(RequestNumber number, std::string_view field, const std::string& query) {
  CurveRequest& request = requests_.at(number);
  net::Request get;
  get.target =
      fmt::format("/api/v1/query_range?query={}&start={}&end={}&step={}", net::PercentEncode(query),
                  request.start, request.start + (kPoints - 1) * request.step, request.step);
  if (!request.authorization.empty()) get.headers.Add("Authorization", request.authorization);
  request.calls.push_back(client_.Send(std::move(get),
                                       {.deadlines = kDeadlines, .max_body = kMaxBytes},
                                       [this, number, field](const Result<net::Response>& answer) {
                                         OnAnswer(number, field, answer);
                                       }));
}

void MetricHistory::OnAnswer(RequestNumber number, std::string_view field,
                             const Result<net::Response>& answer) {
  CurveRequest& request = requests_.at(number);
  Status status = answer.status();
  if (status.ok()) status = CheckStatus(answer->status);
  if (status.ok()) {
    status = AddCurves(answer->body, field, request.start, request.step, kPoints, &request.gpus);
  }
  if (!status.ok()) return Finish(number, status.Annotate("cannot read from Prometheus"));
  if (--request.unanswered > 0) return;
  Finish(number, Json::MakeObject({{"start", Json::Int(request.start)},
                                   {"step", Json::Int(request.step)},
                                   {"gpus", std::move(request.gpus)}}));
}

void MetricHistory::Finish(RequestNumber number, Result<Json> answer) {
  const Done done = std::exchange(requests_.at(number).done, nullptr);
  if (!done) return;  // another query has failed before
  // A call must not be destroyed inside its callback.
  runner_.Post([this, number, weak = weak_.Get()] {
    if (weak) requests_.erase(number);
  });
  done(std::move(answer));
}

Status AddCurves(std::string_view answer, std::string_view field, int64_t start, int64_t step,
                 int64_t points, Json* gpus) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(answer));
  RETURN_IF_ERROR(ErrorOf(json));
  const Json* result = FindPath(json, {"data", "result"});
  if (result == nullptr || !result->is_array()) {
    return Error(Code::kInvalidArgument, "the answer of Prometheus has no data.result");
  }
  for (const Json& series : result->items()) {
    const Json* metric = series.Find("metric");
    const Json* values = series.Find("values");
    const std::string uuid = metric == nullptr ? "" : metric->StringAt("UUID").value_or("");
    if (uuid.empty() || values == nullptr || !values->is_array()) continue;
    Json curve = Json::MakeArray(Json::Array(static_cast<size_t>(points)));
    for (const Json& value : values->items()) {
      if (!value.is_array() || value.items().size() != 2) continue;
      const Result<double> time = value.items()[0].ToDouble();
      if (!time.ok()) continue;
      const int64_t index =
          std::llround((*time - static_cast<double>(start)) / static_cast<double>(step));
      if (index >= 0 && index < points)
        curve.items()[static_cast<size_t>(index)] = NumberOf(value.items()[1]);
    }
    Json* gpu = gpus->Find(uuid);
    if (gpu == nullptr) gpu = &gpus->Set(uuid, Json::MakeObject());
    gpu->Set(field, std::move(curve));
  }
  return Status::Ok();
}

}  // namespace tessera::console
