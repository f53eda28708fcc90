// SPDX-License-Identifier: Apache-2.0
#include "src/console/viewers.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"

namespace tessera::console {
namespace {

using Piece = net::BodyStream::Piece;

Piece EventOf(std::string_view type, uint64_t id, std::string_view data) {
  return std::make_shared<const std::string>(
      fmt::format("event: {}\nid: {}\ndata: {}\n\n", type, id, data));
}

// Appends `text` to a JSON array under construction.
void AppendItem(std::string_view text, std::string* array) {
  if (array->back() != '[') array->push_back(',');
  array->append(text);
}

void AppendText(std::string_view text, std::string* array) {
  if (array->back() != '[') array->push_back(',');
  AppendJsonString(text, array);
}

}  // namespace

Viewers::Viewers(net::IoThread& io, TaskRunner& runner, ClusterModel& model,
                 ConsoleMetrics& metrics)
    : io_(io), runner_(runner), model_(model), metrics_(metrics) {
  HeartbeatLater();
}

Result<std::shared_ptr<net::StreamSink>> Viewers::Add(std::shared_ptr<WebSession> session) {
  if (viewers_.size() >= kMaxViewers) {
    return Error(Code::kResourceExhausted, "{} pages are open already: retry later",
                 viewers_.size());
  }
  const auto streams_of_user = std::ranges::count_if(viewers_, [&](const Viewer& viewer) {
    return !viewer.ended && viewer.session->user == session->user;
  });
  if (streams_of_user >= static_cast<ptrdiff_t>(kMaxStreamsPerUser)) {
    return Error(Code::kResourceExhausted, "you have {} open pages: close some", streams_of_user);
  }
  Viewer& viewer = viewers_.emplace_back();
  viewer.rights_key = session->rights.Key();
  viewer.session = std::move(session);
  viewer.stream = std::make_unique<net::BodyStream>(
      io_, runner_,
      net::BodyStream::Options{.queue_bytes = kQueueBytes,
                               .on_drained = [this, &viewer] { OnDrained(viewer); },
                               .on_closed = [this, &viewer] { Remove(&viewer); }});
  metrics_.streams.Add();
  SendState(viewer, StateEvent());
  SendSnapshot(viewer);
  return viewer.stream->sink();
}

void Viewers::OnDrained(Viewer& viewer) {
  if (viewer.ended) return;
  if (viewer.needs_state) SendState(viewer, StateEvent());
  if (viewer.needs_snapshot) return SendSnapshot(viewer);
  if (viewer.next_part) SendPart(viewer);
}

void Viewers::Send(Viewer& viewer, const Piece& event) {
  viewer.needs_snapshot = !viewer.stream->Push(event);
  if (viewer.needs_snapshot) metrics_.slow_viewers.Add();
}

void Viewers::SendState(Viewer& viewer, const Piece& event) {
  viewer.needs_state = !viewer.stream->Push(event);
}

void Viewers::SendSnapshot(Viewer& viewer) {
  viewer.needs_snapshot = false;
  viewer.next_part.emplace();
  if (model_.synced()) metrics_.snapshots.Add();
  SendPart(viewer);
}

void Viewers::SendPart(Viewer& viewer) {
  if (!model_.synced()) return;  // OnState follows
  model_.Flush();
  const SnapshotPart& part = PartFor(viewer);
  if (!viewer.stream->Push(part.event)) {
    viewer.needs_snapshot = true;
    return;
  }
  if (part.next.kind == SnapshotPosition::Kind::kEnd) {
    viewer.next_part.reset();
  } else {
    viewer.next_part = part.next;
    viewer.stream->NotifyWhenDrained();
  }
}

const Viewers::SnapshotPart& Viewers::PartFor(const Viewer& viewer) {
  if (std::exchange(parts_version_, model_.version()) != model_.version() ||
      parts_.size() >= kMaxParts) {
    parts_.clear();
  }
  const SnapshotPosition& position = *viewer.next_part;
  const bool first = position.kind == SnapshotPosition::Kind::kNodes && position.after.empty();
  const auto [found, is_new] = parts_.try_emplace(
      fmt::format("{}|{}|{}", viewer.rights_key, static_cast<int>(position.kind), position.after));
  SnapshotPart& part = found->second;
  if (!is_new) return part;
  part.next = position;
  const Rights& rights = viewer.session->rights;
  std::string nodes = "[", pods = "[";
  AppendItems(rights, &part.next, &nodes, &pods);
  const std::string head =
      first ? fmt::format("\"version\":{},\"mayListNodes\":{},\"mayListAllPods\":{},",
                          model_.version(), rights.nodes, rights.all_pods)
            : std::string();
  part.event = EventOf(first ? "snapshot" : "part", model_.version(),
                       fmt::format("{{{}\"nodes\":{}],\"pods\":{}],\"more\":{}}}", head, nodes,
                                   pods, part.next.kind != SnapshotPosition::Kind::kEnd));
  return part;
}

void Viewers::AppendItems(const Rights& rights, SnapshotPosition* position, std::string* nodes,
                          std::string* pods) const {
  const auto is_full = [&] { return nodes->size() + pods->size() >= kPartBytes; };
  if (position->kind == SnapshotPosition::Kind::kNodes) {
    const auto sees_namespace = PodsSeenBy(rights);
    auto node = model_.nodes().upper_bound(position->after);
    if (!rights.nodes) node = model_.nodes().end();
    for (; node != model_.nodes().end(); ++node) {
      if (is_full()) return;
      AppendItem(model_.NodeText(node->first, sees_namespace), nodes);
      position->after = node->first;
    }
    *position = {SnapshotPosition::Kind::kPods, ""};
  }
  for (auto pod = model_.pods().upper_bound(Uid(position->after)); pod != model_.pods().end();
       ++pod) {
    if (is_full()) return;
    position->after = pod->first.str();
    if (rights.SeesPodsOf(model_.NamespaceOf(pod->first))) {
      AppendItem(model_.PodText(pod->first), pods);
    }
  }
  *position = {SnapshotPosition::Kind::kEnd, ""};
}

Result<std::shared_ptr<net::StreamSink>> Viewers::AddDownload(std::shared_ptr<WebSession> session) {
  if (downloads_.size() >= kMaxDownloads) {
    return Error(Code::kResourceExhausted, "{} clients read the cluster now: retry later",
                 downloads_.size());
  }
  model_.Flush();
  Download& download = downloads_.emplace_back();
  const Rights& rights = session->rights;
  download.stream = std::make_unique<net::BodyStream>(
      io_, runner_,
      net::BodyStream::Options{.on_drained = [this, &download] { SendDownload(download); },
                               .on_closed =
                                   [this, &download] {
                                     downloads_.remove_if([&](const Download& other) {
                                       return &other == &download;
                                     });
                                   }});
  download.stream->Push(std::make_shared<const std::string>(
      fmt::format("{{\"version\":{},\"mayListNodes\":{},\"mayListAllPods\":{},\"nodes\":[",
                  model_.version(), rights.nodes, rights.all_pods)));
  download.session = std::move(session);
  SendDownload(download);
  return download.stream->sink();
}

void Viewers::SendDownload(Download& download) {
  // Closes the stream within the JSON, so that the client notices the missing part.
  if (!model_.synced() || download.session->ended) return download.stream->Close();
  model_.Flush();
  const auto kind = download.next_part.kind;
  std::string nodes = "[", pods = "[", text;
  AppendItems(download.session->rights, &download.next_part, &nodes, &pods);
  download.Append(nodes, &text);
  if (kind == SnapshotPosition::Kind::kNodes && download.next_part.kind != kind) {
    text += "],\"pods\":[";
    download.has_items = false;
  }
  download.Append(pods, &text);
  const bool ends = download.next_part.kind == SnapshotPosition::Kind::kEnd;
  if (ends) text += "]}";
  download.stream->Push(std::make_shared<const std::string>(std::move(text)));
  ends ? download.stream->Finish() : download.stream->NotifyWhenDrained();
}

void Viewers::Download::Append(std::string_view array, std::string* text) {
  if (array.size() == 1) return;
  if (std::exchange(has_items, true)) text->push_back(',');
  text->append(array.substr(1));
}

void Viewers::Remove(Viewer* viewer) {
  viewers_.remove_if([&](const Viewer& other) { return &other == viewer; });
}

std::string Viewers::ChangeText(const Rights& rights, const ClusterModel::Changes& changes) const {
  const auto sees_namespace = PodsSeenBy(rights);
  std::string nodes = "[", nodes_gone = "[", pods = "[", pods_gone = "[";
  for (const std::string& name : changes.nodes) {
    if (!rights.nodes) break;
    const auto node = model_.nodes().find(name);
    if (node == model_.nodes().end()) {
      AppendText(name, &nodes_gone);
    } else {
      AppendItem(model_.NodeText(name, sees_namespace), &nodes);
    }
  }
  for (const Uid& uid : changes.pods) {
    const auto pod = model_.pods().find(uid);
    if (pod == model_.pods().end()) {
      AppendText(uid.str(), &pods_gone);
    } else if (rights.SeesPodsOf(model_.NamespaceOf(uid))) {
      AppendItem(model_.PodText(uid), &pods);
    }
  }
  return fmt::format(
      "{{\"version\":{},\"nodes\":{}],\"nodesGone\":{}],\"pods\":{}],\"podsGone\":{}]}}",
      model_.version(), nodes, nodes_gone, pods, pods_gone);
}

Piece Viewers::StateEvent() const {
  Json state = Json::MakeObject({{"synced", Json::Bool(model_.synced())}});
  if (const auto outage = model_.outage()) {
    state.Set("staleSince", Json::String(Rfc3339(outage->since)));
    state.Set("error", Json::String(outage->status.message()));
  }
  return EventOf("state", model_.version(), state.Serialize());
}

void Viewers::OnChanges(const ClusterModel::Changes& changes) {
  std::map<std::string, Piece> events;  // by key of rights
  for (Viewer& viewer : viewers_) {
    if (viewer.needs_snapshot || viewer.ended) continue;
    Piece& event = events[viewer.rights_key];
    if (!event) {
      event = EventOf("change", model_.version(), ChangeText(viewer.session->rights, changes));
    }
    Send(viewer, event);
  }
  parts_.clear();
}

void Viewers::OnState() {
  const Piece event = StateEvent();
  parts_.clear();
  for (Viewer& viewer : viewers_) {
    if (viewer.ended) continue;
    SendState(viewer, event);
    SendSnapshot(viewer);
  }
}

void Viewers::OnSession(const WebSession& session) {
  for (Viewer& viewer : viewers_) {
    if (viewer.session.get() != &session || viewer.ended) continue;
    if (session.ended) {
      viewer.ended = true;
      viewer.stream->Push(EventOf("end", model_.version(), "{}"));
      viewer.stream->Finish();
      continue;
    }
    viewer.rights_key = session.rights.Key();
    SendSnapshot(viewer);
  }
}

void Viewers::HeartbeatLater() {
  runner_.PostDelayed(kHeartbeat, [this, weak = weak_.Get()] {
    if (!weak) return;
    const auto beat = std::make_shared<const std::string>("event: beat\ndata: {}\n\n");
    for (Viewer& viewer : viewers_) {
      // Viewing counts as use of the session.
      viewer.session->last_used_at = runner_.clock().Now();
      if (!viewer.needs_snapshot && !viewer.ended) Send(viewer, beat);
    }
    HeartbeatLater();
  });
}

}  // namespace tessera::console
