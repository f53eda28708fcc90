// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/kubelet_client.h"

#include <fmt/format.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/stat.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "deviceplugin_v1beta1.grpc.pb.h"
#include "podresources_v1.grpc.pb.h"
#include "src/net/unix_listener.h"

namespace tessera::agent {
namespace {

// Larger than the list of a full node with devices of several resources for each pod.
constexpr int kMaxReply = 64 << 20;

Result<std::shared_ptr<grpc::Channel>> Dial(const std::string& path) {
  ASSIGN_OR_RETURN(Fd fd, net::ConnectUnix(path));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetMaxReceiveMessageSize(kMaxReply);
  // The name becomes the :authority of the calls, which Go's server accepts only if it is a host.
  return grpc::CreateCustomInsecureChannelFromFd("localhost", fd.Release(), arguments);
}

std::chrono::system_clock::time_point After(Duration duration) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(duration);
}

Status FromGrpc(const grpc::Status& status, std::string_view what) {
  if (status.ok()) return Status::Ok();
  return Error(static_cast<Code>(status.error_code()), "{}: {}", what, status.error_message());
}

// The objects that must live until gRPC ends a call. They are destroyed on the runner, not on
// gRPC's thread.
template <typename Stub, typename Request, typename Reply>
struct KubeletCall {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<Stub> stub;
  grpc::ClientContext context;
  Request request;
  Reply reply;
};

}  // namespace

class PendingCalls {
 public:
  void Add(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    contexts_.insert(context);
  }
  void Remove(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    contexts_.erase(context);
    changed_.notify_all();
  }
  // Call on the runner's thread. Results that arrive later are dropped.
  void CancelAndWait() {
    std::unique_lock lock(mutex_);
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    changed_.wait(lock, [this] { return contexts_.empty(); });
    cancelled_ = true;
  }
  // Call on the runner's thread.
  bool cancelled() const { return cancelled_; }

 private:
  // Calls end on gRPC's threads.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<grpc::ClientContext*> contexts_;
  bool cancelled_ = false;
};

namespace {

// Calls `start(call, on_done)`. When the call ends, `done(call, status)` runs on the runner.
template <typename CallType, typename Start, typename Done>
void Run(TaskRunner* runner, const std::shared_ptr<PendingCalls>& pending,
         std::shared_ptr<CallType> call, Start start, Done done) {
  CallType* raw = call.get();
  pending->Add(&raw->context);
  start(raw, [runner, pending, call = std::move(call),
              done = std::move(done)](grpc::Status status) mutable {
    grpc::ClientContext* context = &call->context;
    runner->Post(
        [pending, call = std::move(call), done = std::move(done), status = std::move(status)] {
          if (!pending->cancelled()) done(*call, status);
        });
    pending->Remove(context);
  });
}

// Reports to `done`, in a task of its own, that a call could not start.
template <typename Done>
void PostError(TaskRunner* runner, const std::shared_ptr<PendingCalls>& pending, Status status,
               Done done) {
  runner->Post([pending, done = std::move(done), status = std::move(status)] {
    if (!pending->cancelled()) done(status);
  });
}

using RegisterCall =
    KubeletCall<v1beta1::Registration::Stub, v1beta1::RegisterRequest, v1beta1::Empty>;
using ListCall = KubeletCall<v1::PodResourcesLister::Stub, v1::ListPodResourcesRequest,
                             v1::ListPodResourcesResponse>;

PodDevices FromReply(const v1::ListPodResourcesResponse& reply) {
  PodDevices devices;
  for (const v1::PodResources& pod : reply.pod_resources()) {
    devices.pods.emplace_back(pod.namespace_(), pod.name());
    for (const v1::ContainerResources& container : pod.containers()) {
      HeldDevices* last = nullptr;
      for (const v1::ContainerDevices& held : container.devices()) {
        // The kubelet returns an entry for each ID. Entries of the same resource are merged.
        if (last != nullptr && last->resource == held.resource_name()) {
          last->ids.insert(last->ids.end(), held.device_ids().begin(), held.device_ids().end());
          continue;
        }
        devices.held_devices.push_back({pod.namespace_(),
                                        pod.name(),
                                        container.name(),
                                        held.resource_name(),
                                        {held.device_ids().begin(), held.device_ids().end()}});
        last = &devices.held_devices.back();
      }
    }
  }
  return devices;
}

}  // namespace

GrpcKubeletRegistry::GrpcKubeletRegistry(TaskRunner* runner, std::string socket_path)
    : runner_(runner),
      socket_path_(std::move(socket_path)),
      pending_(std::make_shared<PendingCalls>()) {}

GrpcKubeletRegistry::~GrpcKubeletRegistry() { pending_->CancelAndWait(); }

std::string GrpcKubeletRegistry::SocketIdentity() const {
  struct stat info;
  if (::stat(socket_path_.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return "";
  // The file system reuses inode numbers, so the time distinguishes files. It is the time of the
  // last modification, because later operations on a socket, chmod included, do not change it.
  return fmt::format("{}:{}:{}.{}", info.st_dev, info.st_ino, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

void GrpcKubeletRegistry::Register(const Registration& registration, Done done) {
  auto channel = Dial(socket_path_);
  if (!channel.ok()) return PostError(runner_, pending_, channel.status(), std::move(done));
  auto call = std::make_shared<RegisterCall>();
  call->channel = *channel;
  call->stub = v1beta1::Registration::NewStub(call->channel);
  call->context.set_deadline(After(kDeadline));
  // The kubelet dials the endpoint within this call and returns the error (Register in
  // pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go), so the plugin must listen already.
  call->request.set_version("v1beta1");
  call->request.set_endpoint(registration.endpoint);
  call->request.set_resource_name(registration.resource);
  call->request.mutable_options()->set_get_preferred_allocation_available(true);
  call->request.mutable_options()->set_pre_start_required(registration.pre_start);
  Run(
      runner_, pending_, call,
      [](RegisterCall* c, std::function<void(grpc::Status)> on_done) {
        c->stub->async()->Register(&c->context, &c->request, &c->reply, std::move(on_done));
      },
      [done = std::move(done), path = socket_path_](const RegisterCall&,
                                                    const grpc::Status& status) {
        done(FromGrpc(status, "Register at " + path));
      });
}

GrpcPodResources::GrpcPodResources(TaskRunner* runner, std::string socket_path, Duration deadline)
    : runner_(runner),
      socket_path_(std::move(socket_path)),
      deadline_(deadline),
      pending_(std::make_shared<PendingCalls>()) {}

GrpcPodResources::~GrpcPodResources() { pending_->CancelAndWait(); }

void GrpcPodResources::List(Done done) {
  auto channel = Dial(socket_path_);
  if (!channel.ok()) return PostError(runner_, pending_, channel.status(), std::move(done));
  auto call = std::make_shared<ListCall>();
  call->channel = *channel;
  call->stub = v1::PodResourcesLister::NewStub(call->channel);
  call->context.set_deadline(After(deadline_));
  Run(
      runner_, pending_, call,
      [](ListCall* c, std::function<void(grpc::Status)> on_done) {
        c->stub->async()->List(&c->context, &c->request, &c->reply, std::move(on_done));
      },
      [done = std::move(done), path = socket_path_](const ListCall& c, const grpc::Status& status) {
        if (!status.ok()) return done(FromGrpc(status, "pod resources at " + path));
        done(FromReply(c.reply));
      });
}

}  // namespace tessera::agent
