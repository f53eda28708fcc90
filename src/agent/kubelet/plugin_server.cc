// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/plugin_server.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "deviceplugin_v1beta1.grpc.pb.h"
#include "src/base/log.h"
#include "src/base/weak_ptr.h"
#include "src/net/accept_loop.h"

namespace tessera::agent {
namespace {

using DeviceList = v1beta1::ListAndWatchResponse;

grpc::Status ToGrpc(const Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), status.message()};
}

DeviceList ListOf(const std::vector<DeviceSet::Offer>& offers) {
  DeviceList list;
  list.mutable_devices()->Reserve(static_cast<int>(offers.size()));
  for (const DeviceSet::Offer& offer : offers) {
    v1beta1::Device* device = list.add_devices();
    device->set_id(offer.id);
    // The kubelet counts an Unhealthy device in the resource's capacity, but not in allocatable.
    device->set_health(offer.healthy ? "Healthy" : "Unhealthy");
    if (offer.numa_node) device->mutable_topology()->add_nodes()->set_id(*offer.numa_node);
  }
  return list;
}

class Stream;

// The open streams, and the list that they send. Each message replaces the kubelet's whole list of
// the resource, so a slow stream gets only the latest list.
class StreamHub {
 public:
  StreamHub(TaskRunner* runner, KubeletMetrics* metrics, PluginServer::Events events)
      : runner_(runner), metrics_(metrics), events_(std::move(events)) {}

  void Publish(DeviceList list);
  void CloseAll();
  grpc::ServerWriteReactor<DeviceList>* Open(grpc::CallbackServerContext* context);
  int open_count() const { return open_count_; }

 private:
  friend class Stream;

  void Remove(Stream* stream);
  std::vector<std::shared_ptr<Stream>> Streams();

  TaskRunner* const runner_;
  KubeletMetrics* const metrics_;
  const PluginServer::Events events_;
  // Used only on the runner's thread.
  int open_count_ = 0;

  // gRPC calls streams back on its own threads, while the runner publishes.
  std::mutex mutex_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::shared_ptr<const DeviceList> list_;
  uint64_t version_ = 0;
  WeakPtrFactory<StreamHub> weak_{this};
};

// One ListAndWatch call. At most one operation runs at a time. gRPC's objects are valid until
// OnDone, which comes only after Finish; Finish is called only while no operation runs.
class Stream final : public grpc::ServerWriteReactor<DeviceList> {
 public:
  Stream(StreamHub* hub, grpc::CallbackServerContext* context) : hub_(hub), context_(context) {}

  // Ends the stream or sends the latest list, if necessary. Any thread.
  void Advance() {
    bool finish = false;
    {
      const std::lock_guard lock(hub_->mutex_);
      if (busy_ || finished_) return;
      if (closing_) {
        finish = finished_ = true;
      } else if (hub_->list_ == nullptr || sent_version_ == hub_->version_) {
        return;
      } else {
        busy_ = true;
        sent_version_ = hub_->version_;
        sending_ = hub_->list_;
      }
    }
    // The lock is not held here, because gRPC may call back from within these calls.
    if (finish) {
      Finish(grpc::Status::OK);
    } else {
      hub_->metrics_->list_and_watch_messages.Add();
      StartWrite(sending_.get());
    }
  }

  // Ends the stream. Cancels a running write, because a peer that does not read would block it
  // forever.
  void Close() {
    bool write_is_running = false;
    {
      const std::lock_guard lock(hub_->mutex_);
      if (finished_) return;
      closing_ = true;
      write_is_running = busy_;
      cancelling_ = write_is_running;
    }
    if (!write_is_running) return Advance();
    context_->TryCancel();
    {
      const std::lock_guard lock(hub_->mutex_);
      cancelling_ = false;
      busy_ = !write_done_;
    }
    Advance();
  }

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(hub_->mutex_);
      if (!ok) closing_ = true;
      write_done_ = true;
      if (cancelling_) return;  // Close continues
      busy_ = write_done_ = false;
    }
    Advance();
  }

  void OnCancel() override {
    {
      const std::lock_guard lock(hub_->mutex_);
      closing_ = true;
    }
    Advance();
  }

  void OnDone() override { hub_->Remove(this); }

 private:
  StreamHub* const hub_;
  grpc::CallbackServerContext* const context_;
  // The hub's mutex guards all members below.
  std::shared_ptr<const DeviceList> sending_;
  uint64_t sent_version_ = 0;
  bool busy_ = false;  // a write or Close is running
  bool write_done_ = false;
  bool cancelling_ = false;
  bool closing_ = false;
  bool finished_ = false;
};

std::vector<std::shared_ptr<Stream>> StreamHub::Streams() {
  const std::lock_guard lock(mutex_);
  return streams_;
}

void StreamHub::Publish(DeviceList list) {
  const std::string bytes = list.SerializeAsString();
  {
    const std::lock_guard lock(mutex_);
    // The kubelet writes its checkpoint for every message (genericDeviceUpdateCallback in
    // pkg/kubelet/cm/devicemanager/manager.go), so an unchanged list is not sent.
    if (list_ != nullptr && list_->SerializeAsString() == bytes) return;
    list_ = std::make_shared<const DeviceList>(std::move(list));
    ++version_;
  }
  for (const auto& stream : Streams()) stream->Advance();
}

void StreamHub::CloseAll() {
  for (const auto& stream : Streams()) stream->Close();
}

grpc::ServerWriteReactor<DeviceList>* StreamHub::Open(grpc::CallbackServerContext* context) {
  const auto stream = std::make_shared<Stream>(this, context);
  {
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
  }
  runner_->Post([this, weak = weak_.Get()] {
    if (!weak) return;
    ++open_count_;
    events_.stream_opened();
  });
  stream->Advance();
  return stream.get();
}

void StreamHub::Remove(Stream* stream) {
  std::shared_ptr<Stream> removed;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(streams_.begin(), streams_.end(),
                                    [&](const auto& held) { return held.get() == stream; });
    TESSERA_CHECK(found != streams_.end());
    removed = std::move(*found);
    streams_.erase(found);
  }
  runner_->Post([this, weak = weak_.Get()] {
    if (!weak) return;
    --open_count_;
    events_.stream_closed();
  });
}

// A call that may be answered later, on any thread. Destroying it without an answer reports that
// the agent stops. gRPC's objects are valid until Finish.
class PendingCall {
 public:
  PendingCall(grpc::CallbackServerContext* context, std::string_view method,
              KubeletMetrics* metrics, LatencyHistogram* latency)
      : reactor_(context->DefaultReactor()),
        method_(method),
        metrics_(metrics),
        latency_(latency),
        start_(clock_.Now()) {}
  ~PendingCall() {
    if (!finished_) Finish(Status(Code::kUnavailable, "tessera-agent is stopping"));
  }
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }
  // Call once. The plugin may be destroyed as soon as this call returns.
  void Finish(const Status& status) {
    finished_ = true;
    if (latency_ != nullptr) latency_->Observe(clock_.Now() - start_);
    if (!status.ok()) {
      metrics_->calls_refused.Add(method_);
      Log(Severity::kWarning, "rejected the kubelet's call",
          {{"method", method_}, {"error", status.ToString()}});
    }
    reactor_->Finish(ToGrpc(status));
  }

 private:
  grpc::ServerUnaryReactor* const reactor_;
  const std::string_view method_;
  KubeletMetrics* const metrics_;
  LatencyHistogram* const latency_;
  const SystemClock clock_;
  const MonotonicTime start_;
  bool finished_ = false;
};

class PluginService final : public v1beta1::DevicePlugin::CallbackService {
 public:
  PluginService(StreamHub* hub, const PluginResponder* responder, const DeviceSetHolder* devices,
                KubeletMetrics* metrics)
      : hub_(hub), responder_(responder), devices_(devices), metrics_(metrics) {}

  grpc::ServerUnaryReactor* GetDevicePluginOptions(grpc::CallbackServerContext* context,
                                                   const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions* reply) override {
    reply->set_get_preferred_allocation_available(responder_->has_preference());
    reply->set_pre_start_required(responder_->requires_pre_start());
    PendingCall call(context, "GetDevicePluginOptions", metrics_, nullptr);
    call.Finish(Status::Ok());
    return call.reactor();
  }

  grpc::ServerWriteReactor<DeviceList>* ListAndWatch(grpc::CallbackServerContext* context,
                                                     const v1beta1::Empty*) override {
    return hub_->Open(context);
  }

  grpc::ServerUnaryReactor* GetPreferredAllocation(
      grpc::CallbackServerContext* context, const v1beta1::PreferredAllocationRequest* request,
      v1beta1::PreferredAllocationResponse* reply) override {
    PendingCall call(context, "GetPreferredAllocation", metrics_, &metrics_->preferred_allocation);
    call.Finish(Prefer(*request, reply));
    return call.reactor();
  }

  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context,
                                     const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* reply) override {
    auto call = std::make_shared<PendingCall>(context, "Allocate", metrics_, &metrics_->allocate);
    AllocateFrom(0, *request, reply, call);
    return call->reactor();
  }

  grpc::ServerUnaryReactor* PreStartContainer(grpc::CallbackServerContext* context,
                                              const v1beta1::PreStartContainerRequest* request,
                                              v1beta1::PreStartContainerResponse*) override {
    auto call = std::make_shared<PendingCall>(context, "PreStartContainer", metrics_, nullptr);
    responder_->Check(Strings(request->devices_ids()),
                      [call](const Status& status) { call->Finish(status); });
    return call->reactor();
  }

 private:
  Status Prefer(const v1beta1::PreferredAllocationRequest& request,
                v1beta1::PreferredAllocationResponse* reply) {
    const auto devices = devices_->Get();
    if (devices == nullptr) return Status(Code::kUnavailable, "the GPUs are not known yet");
    for (const auto& container : request.container_requests()) {
      ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                       responder_->Prefer(*devices, Strings(container.available_deviceids()),
                                          Strings(container.must_include_deviceids()),
                                          container.allocation_size()));
      auto* answer = reply->add_container_responses();
      for (const std::string& id : ids) answer->add_deviceids(id);
    }
    return Status::Ok();
  }

  // Answers the containers one after the other; the kubelet sends one container per call.
  void AllocateFrom(int at, const v1beta1::AllocateRequest& request,
                    v1beta1::AllocateResponse* reply, const std::shared_ptr<PendingCall>& call) {
    if (at == request.container_requests_size()) return call->Finish(Status::Ok());
    const auto devices = devices_->Get();
    if (devices == nullptr) {
      return call->Finish(Status(Code::kUnavailable, "the GPUs are not known yet"));
    }
    responder_->Answer(
        *devices, Strings(request.container_requests(at).devices_ids()),
        [this, at, &request, reply, call](const Result<ContainerAllocation>& allocation) {
          if (!allocation.ok()) return call->Finish(allocation.status());
          Fill(*allocation, reply->add_container_responses());
          AllocateFrom(at + 1, request, reply, call);
        });
  }

  static void Fill(const ContainerAllocation& allocation,
                   v1beta1::ContainerAllocateResponse* answer) {
    answer->mutable_envs()->insert(allocation.env.begin(), allocation.env.end());
    answer->mutable_annotations()->insert(allocation.annotations.begin(),
                                          allocation.annotations.end());
    for (const DeviceSpec& node : allocation.devices) {
      v1beta1::DeviceSpec* spec = answer->add_devices();
      spec->set_container_path(node.container_path);
      spec->set_host_path(node.host_path);
      spec->set_permissions("rw");  // without m: the container need not create the node
    }
  }

  template <typename Repeated>
  static std::vector<std::string> Strings(const Repeated& repeated) {
    return {repeated.begin(), repeated.end()};
  }

  StreamHub* const hub_;
  const PluginResponder* const responder_;
  const DeviceSetHolder* const devices_;
  KubeletMetrics* const metrics_;
};

class GrpcPluginServer final : public PluginServer {
 public:
  GrpcPluginServer(TaskRunner* runner, const PluginResponder* responder,
                   const DeviceSetHolder* devices, KubeletMetrics* metrics, std::string path,
                   Events events)
      : path_(std::move(path)),
        hub_(runner, metrics, std::move(events)),
        service_(&hub_, responder, devices, metrics),
        accept_loop_(runner, [this](Fd connection) {
          grpc::AddInsecureChannelFromFd(server_.get(), connection.Release());
        }) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    // Turns off gRPC's pings that measure the bandwidth of a connection, because all peers are on
    // this machine.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    server_ = builder.BuildAndStart();
    TESSERA_CHECK(server_ != nullptr);
  }

  ~GrpcPluginServer() override {
    accept_loop_.Close();
    hub_.CloseAll();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    server_->Wait();
  }

  Status Listen() override { return accept_loop_.Listen(path_, 0600); }
  bool SocketPresent() const override { return accept_loop_.OwnsPath(); }
  void CloseStreams() override { hub_.CloseAll(); }
  int open_streams() const override { return hub_.open_count(); }
  void Publish(const std::vector<DeviceSet::Offer>& offers) override {
    hub_.Publish(ListOf(offers));
  }

 private:
  const std::string path_;
  StreamHub hub_;
  PluginService service_;
  std::unique_ptr<grpc::Server> server_;
  net::AcceptLoop accept_loop_;
};

}  // namespace

std::unique_ptr<PluginServer> MakePluginServer(TaskRunner* runner, const PluginResponder* responder,
                                               const DeviceSetHolder* devices,
                                               KubeletMetrics* metrics, std::string path,
                                               PluginServer::Events events) {
  return std::make_unique<GrpcPluginServer>(runner, responder, devices, metrics, std::move(path),
                                            std::move(events));
}

}  // namespace tessera::agent
