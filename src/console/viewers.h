// SPDX-License-Identifier: Apache-2.0
// Sends the cluster to all viewers, as server-sent events:
//
//   event: snapshot   the cluster, or its first part
//   event: part       the next part of the snapshot; "more" says whether another part follows
//   event: change     nodes and pods that changed since the previous version
//   event: state      whether the view is current
//   event: beat       the console is reachable; every kHeartbeat
//   event: end        the session has ended
//
// A viewer gets the next part of a snapshot when it has read the previous part. So a snapshot of a
// large cluster takes the memory of one part, and a page draws its first nodes at once. Changes
// are sent between parts. A later part may repeat an object of an earlier change.
//
// All viewers with equal rights share the text of an event, which is generated once. A viewer
// whose queue is full gets no more changes. When it has read its queue, it gets a snapshot, and the
// state if it missed a state event. So a slow viewer costs only its queue.
//
// Threads: the runner's. Bounds: kMaxViewers, kMaxStreamsPerUser, kMaxDownloads, kMaxParts.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/base/weak_ptr.h"
#include "src/console/cluster_model.h"
#include "src/console/metrics.h"
#include "src/console/sessions.h"
#include "src/net/body_stream.h"
#include "src/net/io_thread.h"

namespace tessera::console {

class Viewers {
 public:
  static constexpr size_t kMaxViewers = 300;
  static constexpr size_t kMaxStreamsPerUser = 20;
  static constexpr size_t kMaxDownloads = 20;
  static constexpr size_t kQueueBytes = 4 << 20;
  static constexpr size_t kPartBytes = 64 << 10;
  static constexpr size_t kMaxParts = 32;  // cached for viewers that soon need the same part
  // A page that gets no event for three heartbeats is not current. Heartbeats also keep proxies
  // from closing an idle stream.
  static constexpr Duration kHeartbeat = std::chrono::seconds(3);

  // All arguments must outlive the viewers.
  Viewers(net::IoThread& io, TaskRunner& runner, ClusterModel& model, ConsoleMetrics& metrics);

  // The body of the response for a new viewer. RESOURCE_EXHAUSTED if there are too many viewers, or
  // too many of this user.
  Result<std::shared_ptr<net::StreamSink>> Add(std::shared_ptr<WebSession> session);
  // The body of a response with the whole cluster as one JSON object. RESOURCE_EXHAUSTED if there
  // are kMaxDownloads already. REQUIRES: the model is synced.
  Result<std::shared_ptr<net::StreamSink>> AddDownload(std::shared_ptr<WebSession> session);

  void OnChanges(const ClusterModel::Changes& changes);
  void OnState();
  // Call when the session's rights have changed, or when it has ended.
  void OnSession(const WebSession& session);
  size_t size() const { return viewers_.size(); }

 private:
  // How far a snapshot has been sent.
  struct SnapshotPosition {
    enum class Kind { kNodes, kPods, kEnd };
    Kind kind = Kind::kNodes;
    std::string after;  // the last object of this kind that was sent; "": none
  };
  struct Viewer {
    std::shared_ptr<WebSession> session;
    std::string rights_key;
    bool needs_snapshot = false;
    bool needs_state = false;  // needs a state event
    bool ended = false;
    std::optional<SnapshotPosition> next_part;  // nullopt: it has the whole snapshot
    std::unique_ptr<net::BodyStream> stream;
  };
  struct Download {
    std::shared_ptr<WebSession> session;
    SnapshotPosition next_part;
    bool has_items = false;  // whether the JSON array that is being sent has items
    std::unique_ptr<net::BodyStream> stream;

    // Appends the items of an array that begins with "[" and lacks its end.
    void Append(std::string_view array, std::string* text);
  };
  struct SnapshotPart {
    net::BodyStream::Piece event;
    SnapshotPosition next;
  };

  // Sends a change or a beat, or notes that the viewer needs a snapshot.
  void Send(Viewer& viewer, const net::BodyStream::Piece& event);
  void SendState(Viewer& viewer, const net::BodyStream::Piece& event);
  void SendSnapshot(Viewer& viewer);
  void SendPart(Viewer& viewer);
  void OnDrained(Viewer& viewer);
  void Remove(Viewer* viewer);
  void SendDownload(Download& download);
  const SnapshotPart& PartFor(const Viewer& viewer);
  // Appends items of the JSON arrays `nodes` and `pods`, up to kPartBytes, and moves `position`.
  void AppendItems(const Rights& rights, SnapshotPosition* position, std::string* nodes,
                   std::string* pods) const;
  std::string ChangeText(const Rights& rights, const ClusterModel::Changes& changes) const;
  net::BodyStream::Piece StateEvent() const;
  void HeartbeatLater();

  net::IoThread& io_;
  TaskRunner& runner_;
  ClusterModel& model_;
  ConsoleMetrics& metrics_;
  std::list<Viewer> viewers_;
  std::list<Download> downloads_;
  uint64_t parts_version_ = 0;
  std::map<std::string, SnapshotPart> parts_;  // of parts_version_, by key of rights and position
  WeakPtrFactory<Viewers> weak_{this};
};

}  // namespace tessera::console
