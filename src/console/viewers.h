// SPDX-License-Identifier: Apache-2.0
// Sends the cluster to all viewers, as server-sent events:
//
//   event: snapshot   the whole cluster, as /api/v1/cluster
//   event: change     nodes and pods that changed since the version before
//   event: state      whether the view is current
//   event: end        the session has ended
//
// Viewers with equal rights share each buffer. A viewer whose queue is full gets no more changes.
// When it has read its queue, it gets a snapshot, and the state if it missed a state event. So a
// slow viewer costs only its queue.
//
// Threads: the runner's. Bounds: kMostViewers, kMostOfPerson.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>

#include "src/base/weak_ptr.h"
#include "src/console/cluster_model.h"
#include "src/console/sessions.h"
#include "src/net/body_stream.h"
#include "src/net/io_thread.h"

namespace tessera::console {

class Viewers {
 public:
  static constexpr size_t kMostViewers = 300;
  static constexpr size_t kMostOfPerson = 20;
  static constexpr size_t kQueueBytes = 4 << 20;
  // Keeps proxies from closing an idle stream.
  static constexpr Duration kHeartbeat = std::chrono::seconds(15);

  Viewers(net::IoThread& io, TaskRunner& runner, const ClusterModel& model);

  // The body of the response for a new viewer. RESOURCE_EXHAUSTED if there are too many viewers, or
  // too many of this user.
  Result<std::shared_ptr<net::StreamSink>> Add(std::shared_ptr<WebSession> session);
  // The whole cluster as a user with these rights sees it.
  net::BodyStream::Piece SnapshotFor(const Rights& rights);

  void OnChanges(const ClusterModel::Changes& changes);
  void OnState();
  // Call when the session's rights have changed, or when it has ended.
  void OnSession(const WebSession& session);
  size_t size() const { return viewers_.size(); }

 private:
  struct Viewer {
    std::shared_ptr<WebSession> session;
    std::string key;           // of its rights
    bool behind = false;       // needs a snapshot
    bool lacks_state = false;  // missed a state event
    bool ended = false;
    std::unique_ptr<net::BodyStream> stream;
  };
  struct Cached {
    uint64_t version = 0;
    net::BodyStream::Piece json, event;
  };

  void SendState(Viewer& viewer, const net::BodyStream::Piece& event);
  void SendSnapshot(Viewer& viewer);
  void OnDrained(Viewer& viewer);
  void Remove(Viewer* viewer);
  const Cached& SnapshotOf(const Rights& rights);
  std::string SnapshotText(const Rights& rights) const;
  std::string ChangeText(const Rights& rights, const ClusterModel::Changes& changes) const;
  net::BodyStream::Piece StateEvent() const;
  void HeartbeatLater();

  net::IoThread& io_;
  TaskRunner& runner_;
  const ClusterModel& model_;
  std::list<Viewer> viewers_;
  std::map<std::string, Cached> snapshots_;  // by key of rights
  WeakPtrFactory<Viewers> weak_{this};
};

}  // namespace tessera::console
