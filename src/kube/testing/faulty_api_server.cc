// SPDX-License-Identifier: Apache-2.0
#include "src/kube/testing/faulty_api_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "src/kube/informer.h"
#include "src/kube/testing/samples.h"
#include "src/kube/testing/wire_writer.h"
#include "src/net/http.h"

namespace tessera::kube::testing {
namespace {

using net::testing::RawServer;

std::string StatusText(int code, std::string_view reason) {
  return fmt::format(R"({{"kind":"Status","code":{},"reason":"{}","message":"as the seed says"}})",
                     code, reason);
}

std::string HttpAnswer(int code, const std::string& type, const std::string& body,
                       const std::string& extra_fields = "") {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Type: {}\r\n{}Content-Length: {}\r\n\r\n{}", code,
                     type, extra_fields, body.size(), body);
}

const std::string& TypeText(bool protobuf) {
  static const std::string types[] = {std::string(kJsonType), std::string(kProtobufType)};
  return types[protobuf ? 1 : 0];
}

}  // namespace

std::string FaultyApiServer::Query::Param(const std::string& name) const {
  return net::Request{.target = target}.Query(name).value_or("");
}

// One watch: events as frames or lines, in chunks of random size.
class FaultyApiServer::Stream {
 public:
  Stream(FaultyApiServer& server, int fd, bool protobuf)
      : server_(server), fd_(fd), protobuf_(protobuf) {
    RawServer::Write(fd_, fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}{}\r\n"
                                      "Transfer-Encoding: chunked\r\n\r\n",
                                      TypeText(protobuf_), protobuf_ ? ";stream=watch" : ""));
  }
  int fd() const { return fd_; }
  bool protobuf() const { return protobuf_; }

  std::string Pod(std::string_view type, const PodObject& pod) const {
    if (protobuf_) return WatchFrame(type, "Pod", MessageOf(pod));
    return fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, JsonOf(pod));
  }
  std::string Bookmark(int64_t version, bool end) const {
    PodObject pod{.meta = {.resource_version = std::to_string(version)}};
    if (end) pod.meta.annotations["k8s.io/initial-events-end"] = "true";
    return Pod("BOOKMARK", pod);
  }
  std::string ErrorEvent(int code, std::string_view reason) const {
    if (!protobuf_) {
      return fmt::format("{{\"type\":\"ERROR\",\"object\":{}}}\n", StatusText(code, reason));
    }
    const auto status = WireWriter().Bytes(3, "as the seed says").Bytes(4, reason);
    return WatchFrame("ERROR", "Status",
                      WireWriter(status).Varint(6, static_cast<uint64_t>(code)).text());
  }
  // Sometimes sends one byte per chunk, or splits a chunk. Stops when the client has disconnected,
  // so that its next connection is served.
  void Send(std::string_view bytes) {
    const size_t max_piece = server_.Draw(4) == 0 ? 1 : 1 + server_.Draw(4000);
    for (size_t at = 0; at < bytes.size(); at += max_piece) {
      const std::string_view piece = bytes.substr(at, max_piece);
      const std::string chunk = fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
      const size_t cut = server_.Draw(chunk.size());
      if (!RawServer::Write(fd_, std::string_view(chunk).substr(0, cut))) return;
      if (!RawServer::Write(fd_, std::string_view(chunk).substr(cut))) return;
    }
  }

 private:
  FaultyApiServer& server_;
  int fd_;
  bool protobuf_;
};

FaultyApiServer::FaultyApiServer(uint64_t seed) : random_(seed) {
  server_ = std::make_unique<RawServer>([this](int fd) { Serve(fd); });
}

FaultyApiServer::~FaultyApiServer() {
  stop_ = true;
  server_.reset();
}

void FaultyApiServer::Put(PodObject pod) {
  const std::lock_guard lock(mutex_);
  pod.meta.resource_version = std::to_string(++version_);
  state_.insert_or_assign(KeyOf(pod.meta), pod);
  log_.push_back({version_, false, std::move(pod)});
}

void FaultyApiServer::Remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  auto last = state_.extract(key);
  if (last.empty()) return;
  last.mapped().meta.resource_version = std::to_string(++version_);
  log_.push_back({version_, true, std::move(last.mapped())});
}

std::map<std::string, PodObject> FaultyApiServer::Objects() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::map<std::string, int> FaultyApiServer::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

const FaultyApiServer::State& FaultyApiServer::StateAt(int64_t version) {
  if (version == version_) return state_;
  if (version == listed_version_) return listed_state_;
  listed_state_.clear();
  listed_version_ = version;
  for (const Event& event : log_) {
    if (event.version > version) break;
    if (event.removed) {
      listed_state_.erase(KeyOf(event.pod.meta));
    } else {
      listed_state_.insert_or_assign(KeyOf(event.pod.meta), event.pod);
    }
  }
  return listed_state_;
}

uint64_t FaultyApiServer::Draw(uint64_t bound) {
  const std::lock_guard lock(mutex_);
  return random_.Below(bound);
}

std::string FaultyApiServer::DrawFault(const std::vector<std::string>& kinds) {
  const std::lock_guard lock(mutex_);
  if (random_.Below(100) >= static_cast<uint64_t>(fault_percent_.load())) return "";
  const std::string& kind = kinds[random_.Below(kinds.size())];
  ++counts_[kind];
  return kind;
}

void FaultyApiServer::WaitForClose(int fd) const {
  while (!stop_) {
    pollfd poll{fd, POLLIN | POLLRDHUP, 0};
    if (::poll(&poll, 1, 10) > 0) return;
  }
}

void FaultyApiServer::Serve(int fd) {
  while (!stop_) {
    const std::string header = RawServer::ReadHeader(fd);
    if (header.empty()) return;
    const size_t space = header.find(' ');
    const Query query{
        header.substr(space + 1, header.find(' ', space + 1) - space - 1),
        // Sometimes answers in JSON although the client accepts protobuf, as the server does for
        // custom resources.
        header.find(kProtobufType) != std::string::npos && Draw(4) != 0};
    if (!Answer(fd, query)) return;
  }
}

// Returns false if the connection must be closed.
bool FaultyApiServer::Answer(int fd, const Query& query) {
  if (InjectAnswerFault(fd)) return false;
  const std::string version = query.Param("resourceVersion");
  if (!version.empty() && std::stoll(version) < oldest_version_) {
    RawServer::Write(fd, HttpAnswer(410, TypeText(false), StatusText(410, "Expired")));
    return true;
  }
  return query.Param("watch").empty() ? AnswerList(fd, query) : AnswerWatch(fd, query);
}

// Returns true if the connection must be closed.
bool FaultyApiServer::InjectAnswerFault(int fd) {
  const std::string fault = DrawFault(
      {"500", "429", "410", "garbage", "no answer", "half an answer", "silence", "compaction"});
  if (fault.empty()) return false;
  if (fault == "compaction") {
    const std::lock_guard lock(mutex_);
    oldest_version_ = version_;
    return false;
  }
  if (fault == "500") RawServer::Write(fd, HttpAnswer(500, "text/html", "<html>no"));
  if (fault == "429") {
    RawServer::Write(fd, HttpAnswer(429, TypeText(false), StatusText(429, "TooManyRequests"),
                                    "Retry-After: 1\r\n"));
  }
  if (fault == "410")
    RawServer::Write(fd, HttpAnswer(410, TypeText(false), StatusText(410, "Gone")));
  if (fault == "garbage") RawServer::Write(fd, HttpAnswer(200, TypeText(true), "\xff\xff\xff\xff"));
  if (fault == "half an answer") {
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\nContent-Type: app");
    ::shutdown(fd, SHUT_WR);
    WaitForClose(fd);
  }
  if (fault == "silence") WaitForClose(fd);
  return true;
}

bool FaultyApiServer::AnswerList(int fd, const Query& query) {
  // A token is version and position: "17:500".
  const std::string token = query.Param("continue");
  std::unique_lock lock(mutex_);
  const int64_t version = token.empty() ? version_ : std::stoll(token);
  const size_t begin = token.empty() ? 0 : std::stoul(token.substr(token.find(':') + 1));
  if (version < oldest_version_) {
    lock.unlock();
    RawServer::Write(fd, HttpAnswer(410, TypeText(false), StatusText(410, "Expired")));
    return true;
  }
  const State state = StateAt(version);
  lock.unlock();
  const size_t end = std::min<size_t>(state.size(), begin + std::stoull(query.Param("limit")));
  const std::string continue_token = end < state.size() ? fmt::format("{}:{}", version, end) : "";
  WireWriter message;
  message.Bytes(1, WireWriter().Bytes(2, std::to_string(version)).Bytes(3, continue_token).text());
  std::string items;
  size_t index = 0;
  for (const auto& [key, pod] : state) {
    if (index++ < begin || index > end) continue;
    message.Bytes(2, MessageOf(pod));
    items += (items.empty() ? "" : ",") + JsonOf(pod);
  }
  const std::string json =
      fmt::format(R"({{"metadata":{{"resourceVersion":"{}","continue":"{}"}},"items":[{}]}})",
                  version, continue_token, items);
  const std::string body = query.protobuf ? Enveloped("PodList", message.text()) : json;
  RawServer::Write(fd, HttpAnswer(200, TypeText(query.protobuf), body));
  return true;
}

bool FaultyApiServer::AnswerWatch(int fd, const Query& query) {
  const bool initial = query.Param("sendInitialEvents") == "true";
  // Some servers cannot stream initial objects.
  if (initial && !DrawFault({"cannot stream everything"}).empty()) {
    RawServer::Write(fd, HttpAnswer(422, TypeText(false), StatusText(422, "Invalid")));
    return true;
  }
  Stream stream(*this, fd, query.protobuf);
  int64_t version = initial ? 0 : std::stoll(query.Param("resourceVersion"));
  if (initial && !SendInitial(stream, &version)) return false;
  while (!stop_) {
    pollfd poll{fd, POLLIN | POLLRDHUP, 0};
    if (::poll(&poll, 1, 2) > 0) return false;
    if (!SendChanges(stream, &version)) return false;
  }
  return false;
}

bool FaultyApiServer::SendInitial(Stream& stream, int64_t* version) {
  std::unique_lock lock(mutex_);
  *version = version_;
  std::vector<PodObject> pods;
  for (const auto& [key, pod] : state_) pods.push_back(pod);
  random_.Shuffle(pods);
  lock.unlock();
  for (const PodObject& pod : pods) {
    if (InjectStreamFault(stream)) return false;
    stream.Send(stream.Pod("ADDED", pod));
  }
  stream.Send(stream.Bookmark(*version, true));
  return true;
}

bool FaultyApiServer::SendChanges(Stream& stream, int64_t* version) {
  std::unique_lock lock(mutex_);
  const std::vector<Event> fresh(log_.begin() + std::max<int64_t>(*version - 1, 0), log_.end());
  lock.unlock();
  for (const Event& event : fresh) {
    if (InjectStreamFault(stream)) return false;
    stream.Send(stream.Pod(event.removed ? "DELETED" : "MODIFIED", event.pod));
    *version = event.version;
  }
  if (Draw(10) == 0) stream.Send(stream.Bookmark(*version, false));
  return true;
}

// Returns true if the stream has ended.
bool FaultyApiServer::InjectStreamFault(Stream& stream) {
  const std::string fault =
      DrawFault({"end", "reset", "half an event, then closed", "half an event, then half-closed",
                 "half an event, then silence", "error 410", "error 500", "garbage in the stream",
                 "too long"});
  if (fault.empty()) return false;
  const std::string event = stream.Pod("MODIFIED", {.meta = {.name = "never-whole", .ns = "x"}});
  if (fault == "end") RawServer::Write(stream.fd(), "0\r\n\r\n");
  if (fault == "error 410") stream.Send(stream.ErrorEvent(410, "Expired"));
  if (fault == "error 500") stream.Send(stream.ErrorEvent(500, "InternalError"));
  if (fault == "garbage in the stream") stream.Send("\x01\x02garbage\n\xff\xff\xff\xff\n");
  if (fault == "too long") {
    stream.Send(stream.protobuf() ? "\x7f\xff\xff\xff" : std::string(1 << 20, 'x'));
  }
  if (fault.starts_with("half an event")) {
    stream.Send(std::string_view(event).substr(0, 1 + Draw(event.size() - 1)));
  }
  if (fault.ends_with("half-closed")) ::shutdown(stream.fd(), SHUT_WR);
  if (fault.ends_with("half-closed") || fault.ends_with("silence")) WaitForClose(stream.fd());
  return true;
}

}  // namespace tessera::kube::testing
