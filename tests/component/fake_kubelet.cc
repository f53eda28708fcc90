// SPDX-License-Identifier: Apache-2.0
#include "tests/component/fake_kubelet.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>

#include "api/names.h"
#include "deviceplugin_v1beta1.grpc.pb.h"
#include "src/base/file.h"

namespace tessera::testing {
namespace {

using Ids = std::vector<std::string>;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

Fd NewSocket() { return Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return Status::Ok();
  return Status(static_cast<Code>(status.error_code()), status.error_message());
}

void RemoveSockets(const std::string& dir) {
  const auto names = ListDir(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    struct stat info;
    const std::string path = JoinPath(dir, name);
    if (::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) ::unlink(path.c_str());
  }
}

}  // namespace

// One connection to a plugin, with its streams.
struct PluginConnection {
  Fd raw;  // a second descriptor of the connection, to break it
  std::unique_ptr<v1beta1::DevicePlugin::Stub> stub;
  std::list<grpc::ClientContext> streams;
  std::vector<std::thread> readers;
};

struct FakeKubelet::State final : public v1beta1::Registration::Service {
  explicit State(std::string d) : dir(std::move(d)), socket(JoinPath(dir, "kubelet.sock")) {}

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override;
  void StartStream(const std::shared_ptr<PluginConnection>& connection, bool end_at_once);
  void ReadStream(PluginConnection* connection, grpc::ClientContext* context, bool end_at_once);
  void AcceptAll();
  std::shared_ptr<PluginConnection> Current() {
    const std::lock_guard lock(mutex);
    return connections.empty() ? nullptr : connections.back();
  }

  const std::string dir;
  const std::string socket;

  Fd listener;
  std::unique_ptr<grpc::Server> server;
  std::thread acceptor;
  Fd stop_read, stop_write;

  mutable std::mutex mutex;
  std::condition_variable changed;
  Behavior behavior;
  std::vector<Fd> accepted;
  std::vector<std::shared_ptr<PluginConnection>> connections;
  Clock::time_point listening_since;
  Clock::time_point last_registered;
  int registrations = 0;
  int messages = 0;
  int live_streams = 0;
  std::string endpoint;
  std::string resource;
  std::vector<Device> devices;
};

grpc::Status FakeKubelet::State::Register(grpc::ServerContext*,
                                          const v1beta1::RegisterRequest* request,
                                          v1beta1::Empty*) {
  Behavior now;
  {
    const std::lock_guard lock(mutex);
    now = behavior;
    if (behavior.refuse > 0) --behavior.refuse;
    if (now.refuse == 0 && behavior.no_stream > 0) --behavior.no_stream;
    if (now.refuse == 0 && behavior.end_stream_at_once > 0) --behavior.end_stream_at_once;
  }
  if (request->version() != "v1beta1") {
    return {grpc::StatusCode::INVALID_ARGUMENT, "unsupported version " + request->version()};
  }
  if (now.refuse > 0) return {grpc::StatusCode::INTERNAL, "not today"};
  // The kubelet dials back before it answers, so a plugin must serve already.
  auto connection = std::make_shared<PluginConnection>();
  Fd fd = NewSocket();
  const sockaddr_un address = AddressOf(JoinPath(dir, request->endpoint()));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return {grpc::StatusCode::UNAVAILABLE, request->endpoint() + ": " + std::strerror(errno)};
  }
  ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  connection->raw.Reset(::dup(fd.get()));
  connection->stub =
      v1beta1::DevicePlugin::NewStub(grpc::CreateInsecureChannelFromFd("localhost", fd.Release()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1beta1::DevicePluginOptions options;
  const grpc::Status status = connection->stub->GetDevicePluginOptions(&context, {}, &options);
  if (!status.ok()) return status;
  // Whole GPUs differ from each other; units of shares do not.
  const bool whole = request->resource_name() == names::kResourceGpu;
  if (options.get_preferred_allocation_available() != whole ||
      options.pre_start_required() != now.pre_start) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "other options than a plugin of GPUs has"};
  }
  {
    const std::lock_guard lock(mutex);
    endpoint = request->endpoint();
    resource = request->resource_name();
    connections.push_back(connection);
  }
  for (int i = now.no_stream > 0 ? 1 : 0; i < (now.two_streams ? 2 : 1); ++i) {
    StartStream(connection, now.end_stream_at_once > 0);
  }
  const std::lock_guard lock(mutex);
  ++registrations;
  last_registered = Clock::now();
  changed.notify_all();
  return grpc::Status::OK;
}

void FakeKubelet::State::StartStream(const std::shared_ptr<PluginConnection>& connection,
                                     bool end_at_once) {
  const std::lock_guard lock(mutex);
  grpc::ClientContext* context = &connection->streams.emplace_back();
  connection->readers.emplace_back([this, raw = connection.get(), context, end_at_once] {
    ReadStream(raw, context, end_at_once);
  });
}

void FakeKubelet::State::ReadStream(PluginConnection* connection, grpc::ClientContext* context,
                                    bool end_at_once) {
  const auto reader = connection->stub->ListAndWatch(context, {});
  {
    const std::lock_guard lock(mutex);
    ++live_streams;
    changed.notify_all();
  }
  v1beta1::ListAndWatchResponse list;
  while (reader->Read(&list)) {
    const std::lock_guard lock(mutex);
    ++messages;
    devices.clear();
    for (const v1beta1::Device& device : list.devices()) {
      const bool numa = device.topology().nodes_size() > 0;
      devices.push_back({device.id(), device.health() == "Healthy",
                         numa ? static_cast<int>(device.topology().nodes(0).id()) : -1});
    }
    changed.notify_all();
    if (end_at_once) context->TryCancel();
  }
  reader->Finish();
  const std::lock_guard lock(mutex);
  --live_streams;
  changed.notify_all();
}

void FakeKubelet::State::AcceptAll() {
  while (true) {
    pollfd fds[2] = {{listener.get(), POLLIN, 0}, {stop_read.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 || fds[1].revents != 0) return;
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) continue;
    {
      const std::lock_guard lock(mutex);
      accepted.emplace_back(::dup(fd.get()));
    }
    grpc::AddInsecureChannelFromFd(server.get(), fd.Release());
  }
}

FakeKubelet::FakeKubelet(std::string dir) : state_(std::make_shared<State>(std::move(dir))) {}

FakeKubelet::~FakeKubelet() { Kill(); }

void FakeKubelet::SetBehavior(Behavior behavior) {
  const std::lock_guard lock(state_->mutex);
  state_->behavior = behavior;
}

void FakeKubelet::Bind() {
  RemoveSockets(state_->dir);
  state_->listener = NewSocket();
  const sockaddr_un address = AddressOf(state_->socket);
  TESSERA_CHECK(::bind(state_->listener.get(), reinterpret_cast<const sockaddr*>(&address),
                       sizeof(address)) == 0);
}

void FakeKubelet::Listen() {
  int ends[2];
  TESSERA_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  state_->stop_read.Reset(ends[0]);
  state_->stop_write.Reset(ends[1]);
  grpc::ServerBuilder builder;
  builder.RegisterService(state_.get());
  // A gRPC server without a listening port would not poll for its blocking calls.
  state_->server = builder.BuildAndStart();
  TESSERA_CHECK(state_->server != nullptr);
  {
    const std::lock_guard lock(state_->mutex);
    state_->listening_since = Clock::now();
  }
  TESSERA_CHECK(::listen(state_->listener.get(), 16) == 0);
  state_->acceptor = std::thread([state = state_.get()] { state->AcceptAll(); });
}

void FakeKubelet::Kill() {
  if (state_->acceptor.joinable()) {
    state_->stop_write.Reset();
    state_->acceptor.join();
  }
  state_->listener.Reset();
  std::vector<std::shared_ptr<PluginConnection>> connections;
  {
    const std::lock_guard lock(state_->mutex);
    for (const Fd& fd : state_->accepted) ::shutdown(fd.get(), SHUT_RDWR);
    state_->accepted.clear();
    connections.swap(state_->connections);
    for (const auto& connection : connections) ::shutdown(connection->raw.get(), SHUT_RDWR);
  }
  if (state_->server) {
    state_->server->Shutdown(std::chrono::system_clock::now());
    state_->server->Wait();
    state_->server.reset();
  }
  for (const auto& connection : connections) {
    for (std::thread& reader : connection->readers) reader.join();
  }
}

FakeKubelet::Clock::time_point FakeKubelet::listening_since() const {
  const std::lock_guard lock(state_->mutex);
  return state_->listening_since;
}

int FakeKubelet::registrations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->registrations;
}

bool FakeKubelet::WaitForRegistrations(int count, std::chrono::milliseconds deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, deadline, [&] { return state_->registrations >= count; });
}

FakeKubelet::Clock::time_point FakeKubelet::last_registered() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last_registered;
}

std::string FakeKubelet::endpoint() const {
  const std::lock_guard lock(state_->mutex);
  return state_->endpoint;
}

std::string FakeKubelet::resource() const {
  const std::lock_guard lock(state_->mutex);
  return state_->resource;
}

bool FakeKubelet::WaitForDevices(const std::vector<Device>& wanted,
                                 std::chrono::milliseconds deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(
      lock, deadline, [&] { return state_->live_streams > 0 && state_->devices == wanted; });
}

std::vector<FakeKubelet::Device> FakeKubelet::devices() const {
  const std::lock_guard lock(state_->mutex);
  return state_->devices;
}

int FakeKubelet::messages() const {
  const std::lock_guard lock(state_->mutex);
  return state_->messages;
}

int FakeKubelet::live_streams() const {
  const std::lock_guard lock(state_->mutex);
  return state_->live_streams;
}

void FakeKubelet::EndStreams() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& connection : state_->connections) {
    for (grpc::ClientContext& context : connection->streams) context.TryCancel();
  }
}

void FakeKubelet::HalfClose() {
  if (const auto connection = state_->Current()) ::shutdown(connection->raw.get(), SHUT_WR);
}

Result<std::vector<std::pair<std::string, std::string>>> FakeKubelet::Allocate(const Ids& ids) {
  const auto connection = state_->Current();
  if (connection == nullptr) return Status(Code::kNotFound, "no plugin");
  grpc::ClientContext context;
  v1beta1::AllocateRequest request;
  auto* container = request.add_container_requests();
  for (const std::string& id : ids) container->add_devices_ids(id);
  v1beta1::AllocateResponse reply;
  RETURN_IF_ERROR(FromGrpc(connection->stub->Allocate(&context, request, &reply)));
  if (reply.container_responses_size() != 1) return Status(Code::kInternal, "not one answer");
  std::vector<std::pair<std::string, std::string>> env;
  for (const auto& [name, value] : reply.container_responses(0).envs())
    env.emplace_back(name, value);
  return env;
}

Result<Ids> FakeKubelet::Prefer(const Ids& available, int size) {
  const auto connection = state_->Current();
  if (connection == nullptr) return Status(Code::kNotFound, "no plugin");
  grpc::ClientContext context;
  v1beta1::PreferredAllocationRequest request;
  auto* container = request.add_container_requests();
  for (const std::string& id : available) container->add_available_deviceids(id);
  container->set_allocation_size(size);
  v1beta1::PreferredAllocationResponse reply;
  RETURN_IF_ERROR(FromGrpc(connection->stub->GetPreferredAllocation(&context, request, &reply)));
  if (reply.container_responses_size() != 1) return Status(Code::kInternal, "not one answer");
  const auto& chosen = reply.container_responses(0).deviceids();
  return Ids(chosen.begin(), chosen.end());
}

Status FakeKubelet::PreStart(const Ids& ids) {
  const auto connection = state_->Current();
  if (connection == nullptr) return Status(Code::kNotFound, "no plugin");
  grpc::ClientContext context;
  v1beta1::PreStartContainerRequest request;
  for (const std::string& id : ids) request.add_devices_ids(id);
  v1beta1::PreStartContainerResponse reply;
  return FromGrpc(connection->stub->PreStartContainer(&context, request, &reply));
}

}  // namespace tessera::testing
