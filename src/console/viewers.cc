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

Viewers::Viewers(net::IoThread& io, TaskRunner& runner, const ClusterModel& model)
    : io_(io), runner_(runner), model_(model) {
  HeartbeatLater();
}

Result<std::shared_ptr<net::StreamSink>> Viewers::Add(std::shared_ptr<WebSession> session) {
  if (viewers_.size() >= kMostViewers) {
    return Error(Code::kResourceExhausted, "{} people look already: try again later",
                 viewers_.size());
  }
  const auto of_person = std::ranges::count_if(viewers_, [&](const Viewer& viewer) {
    return !viewer.ended && viewer.session->user == session->user;
  });
  if (of_person >= static_cast<ptrdiff_t>(kMostOfPerson)) {
    return Error(Code::kResourceExhausted, "you have {} open pages: close some", of_person);
  }
  Viewer& viewer = viewers_.emplace_back();
  viewer.key = session->rights.Key();
  viewer.session = std::move(session);
  viewer.stream = std::make_unique<net::BodyStream>(
      io_, runner_,
      net::BodyStream::Options{.queue_bytes = kQueueBytes,
                               .on_drained = [this, &viewer] { OnDrained(viewer); },
                               .on_closed = [this, &viewer] { Remove(&viewer); }});
  SendState(viewer, StateEvent());
  SendSnapshot(viewer);
  return viewer.stream->sink();
}

void Viewers::Remove(Viewer* viewer) {
  viewers_.remove_if([&](const Viewer& other) { return &other == viewer; });
}

void Viewers::OnDrained(Viewer& viewer) {
  if (viewer.ended) return;
  if (viewer.lacks_state) SendState(viewer, StateEvent());
  if (viewer.behind) SendSnapshot(viewer);
}

void Viewers::SendState(Viewer& viewer, const Piece& event) {
  viewer.lacks_state = !viewer.stream->Push(event);
}

void Viewers::SendSnapshot(Viewer& viewer) {
  if (!model_.synced()) return;  // OnState follows
  viewer.behind = !viewer.stream->Push(SnapshotOf(viewer.session->rights).event);
}

Piece Viewers::SnapshotFor(const Rights& rights) { return SnapshotOf(rights).json; }

const Viewers::Cached& Viewers::SnapshotOf(const Rights& rights) {
  Cached& cached = snapshots_[rights.Key()];
  if (!cached.json || cached.version != model_.version()) {
    cached.version = model_.version();
    cached.json = std::make_shared<const std::string>(SnapshotText(rights));
    cached.event = EventOf("snapshot", cached.version, *cached.json);
  }
  return cached;
}

std::string Viewers::SnapshotText(const Rights& rights) const {
  std::string text = fmt::format("{{\"version\":{},\"mayListNodes\":{},\"mayListAllPods\":{}",
                                 model_.version(), rights.nodes, rights.all_pods);
  text += ",\"nodes\":[";
  if (rights.nodes) {
    for (const auto& [name, node] : model_.nodes()) AppendItem(node, &text);
  }
  text += "],\"pods\":[";
  for (const auto& [uid, pod] : model_.pods()) {
    if (rights.SeesPodsOf(pod.ns)) AppendItem(pod.text, &text);
  }
  return text + "]}";
}

std::string Viewers::ChangeText(const Rights& rights, const ClusterModel::Changes& changes) const {
  std::string nodes = "[", nodes_gone = "[", pods = "[", pods_gone = "[";
  for (const std::string& name : changes.nodes) {
    if (!rights.nodes) break;
    const auto node = model_.nodes().find(name);
    if (node == model_.nodes().end()) {
      AppendText(name, &nodes_gone);
    } else {
      AppendItem(node->second, &nodes);
    }
  }
  for (const Uid& uid : changes.pods) {
    const auto pod = model_.pods().find(uid);
    if (pod == model_.pods().end()) {
      AppendText(uid.view(), &pods_gone);
    } else if (rights.SeesPodsOf(pod->second.ns)) {
      AppendItem(pod->second.text, &pods);
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
    if (viewer.behind || viewer.ended) continue;
    Piece& event = events[viewer.key];
    if (!event) {
      event = EventOf("change", model_.version(), ChangeText(viewer.session->rights, changes));
    }
    viewer.behind = !viewer.stream->Push(event);
  }
  // Frees old snapshots that no viewer is still reading.
  std::erase_if(snapshots_,
                [&](const auto& entry) { return entry.second.version != model_.version(); });
}

void Viewers::OnState() {
  const Piece event = StateEvent();
  snapshots_.clear();
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
    viewer.key = session.rights.Key();
    SendSnapshot(viewer);
  }
}

void Viewers::HeartbeatLater() {
  runner_.PostDelayed(kHeartbeat, [this, weak = weak_.Get()] {
    if (!weak) return;
    const auto beat = std::make_shared<const std::string>(": beat\n\n");
    for (Viewer& viewer : viewers_) {
      // Viewing counts as use of the session.
      viewer.session->used = runner_.clock().Now();
      if (!viewer.behind && !viewer.ended) viewer.behind = !viewer.stream->Push(beat);
    }
    HeartbeatLater();
  });
}

}  // namespace tessera::console
