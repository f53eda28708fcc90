// SPDX-License-Identifier: Apache-2.0
#include "src/trace/tracer.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <random>

#include "src/base/log.h"
#include "src/base/random.h"
#include "src/base/strings.h"
#include "src/base/version.h"
#include "src/formats/json.h"

namespace tessera::trace {
namespace {

constexpr Duration kWarningInterval = std::chrono::minutes(1);
// enum SpanKind and enum StatusCode of opentelemetry/proto/trace/v1/trace.proto.
constexpr int kKindInternal = 1;
constexpr int kStatusError = 2;

// Every span of the pod names this span as its parent, whichever program records it.
std::string RootSpanIdOf(const std::string& trace_id) { return trace_id.substr(16); }

std::string Nanos(WallTime time) { return fmt::format("{}", time.time_since_epoch().count()); }

Json Attribute(std::string_view key, std::string_view value) {
  return Json::MakeObject({{"key", Json::String(key)},
                           {"value", Json::MakeObject({{"stringValue", Json::String(value)}})}});
}

// Names of the semantic conventions: https://opentelemetry.io/docs/specs/semconv/resource/k8s/
Json AttributesOf(const PodSpan& span) {
  Json list = Json::MakeArray();
  list.Append(Attribute("k8s.pod.uid", span.subject.pod.str()));
  list.Append(Attribute("k8s.namespace.name", span.subject.ns));
  list.Append(Attribute("k8s.pod.name", span.subject.name));
  if (!span.subject.container.empty()) {
    list.Append(Attribute("k8s.container.name", span.subject.container));
  }
  for (const auto& [key, value] : span.attributes) list.Append(Attribute(key, value));
  return list;
}

Json JsonOf(const PodSpan& span, uint64_t span_number) {
  const std::string trace_id = TraceIdOf(span.subject.pod);
  const std::string root_id = RootSpanIdOf(trace_id);
  Json json = Json::MakeObject({{"traceId", Json::String(trace_id)}});
  json.Set("spanId", Json::String(span.root ? root_id : fmt::format("{:016x}", span_number)));
  if (!span.root) json.Set("parentSpanId", Json::String(root_id));
  json.Set("name", Json::String(span.name));
  json.Set("kind", Json::Int(kKindInternal));
  json.Set("startTimeUnixNano", Json::String(Nanos(span.start)));
  json.Set("endTimeUnixNano", Json::String(Nanos(std::max(span.start, span.end))));
  json.Set("attributes", AttributesOf(span));
  if (!span.status.ok()) {
    json.Set("status", Json::MakeObject({{"code", Json::Int(kStatusError)},
                                         {"message", Json::String(span.status.message())}}));
  }
  return json;
}

Json ListOf(Json item) { return Json::MakeArray({std::move(item)}); }

// The message ExportTraceServiceRequest.
std::string RequestOf(Json spans, const Tracer::Options& options) {
  Json resource = Json::MakeArray(
      {Attribute("service.name", options.service), Attribute("service.version", kTesseraVersion)});
  if (!options.node.empty()) resource.Append(Attribute("k8s.node.name", options.node));
  Json scope = Json::MakeObject({{"scope", Json::MakeObject({{"name", Json::String("tessera")}})},
                                 {"spans", std::move(spans)}});
  Json spans_of_service =
      Json::MakeObject({{"resource", Json::MakeObject({{"attributes", std::move(resource)}})},
                        {"scopeSpans", ListOf(std::move(scope))}});
  return Json::MakeObject({{"resourceSpans", ListOf(std::move(spans_of_service))}}).Serialize();
}

// Whether the OTLP specification allows a retry after this answer. Another status, 500 among them,
// means that the collector will not accept the batch later either.
bool IsRetryable(const Result<net::Response>& answer) {
  static constexpr int kRetryable[] = {429, 502, 503, 504};
  return !answer.ok() || std::ranges::find(kRetryable, answer->status) != std::end(kRetryable);
}

// The time until the next request. Retry-After may also be a date, which is ignored.
Duration PauseAfter(const Result<net::Response>& answer) {
  if (!answer.ok() || (answer->status != 429 && answer->status != 503)) return Tracer::kInterval;
  const auto seconds = ParseInt(Trim(answer->headers.Get("Retry-After")));
  if (!seconds.ok()) return Tracer::kInterval;
  constexpr int64_t kMaxSeconds = Tracer::kMaxPause / std::chrono::seconds(1);
  return std::max(Tracer::kInterval,
                  Duration(std::chrono::seconds(std::clamp<int64_t>(*seconds, 0, kMaxSeconds))));
}

}  // namespace

PodSpan RootSpan(Subject subject, WallTime created, WallTime started) {
  return {
      .name = "pod", .subject = std::move(subject), .start = created, .end = started, .root = true};
}

std::string TraceIdOf(const Uid& pod) {
  std::string id;
  for (const char c : pod.str()) {
    if (c != '-') id.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  const bool is_uuid = id.size() == 32 && id.find_first_not_of("0123456789abcdef") == id.npos;
  // OpenTelemetry rejects IDs of zeros only. The second half is also the ID of the root span.
  if (is_uuid && id.find_first_not_of('0', 16) != id.npos) return id;
  return fmt::format("{:016x}{:016x}", Fnv1a(pod.str()), Fnv1a(pod.str(), 0x9E3779B97F4A7C15u) | 1);
}

void WriteMetrics(const TraceMetrics& metrics, MetricsText* text) {
  WriteCounter("tessera_trace_spans_sent_total", "Spans that the collector has accepted.",
               metrics.sent, text);
  WriteCounter("tessera_trace_spans_dropped_total",
               "Spans that were dropped: the collector was unreachable for long, or rejected them.",
               metrics.dropped, text);
}

Result<std::unique_ptr<Tracer>> Tracer::Start(net::IoThread& io, TaskRunner& runner,
                                              TraceMetrics& metrics, Options options) {
  net::HttpClient::Options client;
  ASSIGN_OR_RETURN(client.server, net::ParseUrl(options.endpoint).Annotate("--otlp-endpoint"));
  if (client.server.tls) {
    ASSIGN_OR_RETURN(client.tls.ca, net::SystemRoots([](const char* name) -> const char* {
                       return std::getenv(name);
                     }));
  }
  return std::unique_ptr<Tracer>(
      new Tracer(io, runner, metrics, std::move(client), std::move(options)));
}

Tracer::Tracer(net::IoThread& io, TaskRunner& runner, TraceMetrics& metrics,
               net::HttpClient::Options client, Options options)
    : runner_(runner),
      metrics_(metrics),
      options_(std::move(options)),
      client_(io, runner, std::move(client)),
      span_id_seed_(Fnv1a(options_.service + options_.node, std::random_device()())) {}

void Tracer::Record(PodSpan span) {
  runner_.Post([self = weak_.Get(), span = std::move(span)]() mutable {
    if (self) self->Add(std::move(span));
  });
}

void Tracer::Add(PodSpan span) {
  if (waiting_.size() >= kMaxWaiting) return metrics_.dropped.Add();
  waiting_.push_back(std::move(span));
  ScheduleSend();
}

void Tracer::ScheduleSend(Duration pause) {
  if (send_scheduled_ || call_.active() || waiting_.empty()) return;
  send_scheduled_ = true;
  runner_.PostDelayed(pause, [self = weak_.Get()] {
    if (!self) return;
    self->send_scheduled_ = false;
    self->Send();
  });
}

void Tracer::Send() {
  batch_size_ = std::min(waiting_.size(), kMaxBatch);
  Json spans = Json::MakeArray();
  Random ids(span_id_seed_);
  for (size_t i = 0; i < batch_size_; ++i) spans.Append(JsonOf(waiting_[i], ids.Next()));
  net::Request request{.method = "POST", .target = "/v1/traces"};
  request.headers.Set("Content-Type", "application/json");
  request.body = RequestOf(std::move(spans), options_);
  call_ = client_.Send(std::move(request), {},
                       [this](const Result<net::Response>& answer) { OnAnswer(answer); });
}

void Tracer::OnAnswer(const Result<net::Response>& answer) {
  const bool accepted = answer.ok() && answer->status / 100 == 2;
  const bool retry = IsRetryable(answer);
  if (!accepted && runner_.clock().Now() >= next_warning_) {
    next_warning_ = runner_.clock().Now() + kWarningInterval;
    Log(Severity::kWarning,
        retry ? "cannot send spans to the collector, retrying"
              : "the collector rejected spans, dropped them",
        {{"endpoint", options_.endpoint},
         {"error",
          answer.ok() ? fmt::format("HTTP {} {}", answer->status, net::ReasonPhrase(answer->status))
                      : answer.status().ToString()}});
  }
  if (accepted || !retry) {
    (accepted ? metrics_.sent : metrics_.dropped).Add(batch_size_);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(batch_size_));
    span_id_seed_ += kMaxBatch;
  }
  batch_size_ = 0;
  ScheduleSend(PauseAfter(answer));
}

}  // namespace tessera::trace
