// SPDX-License-Identifier: Apache-2.0
// Objects of the program that graphs keep alive. Releasing the last reference calls the program's
// destructor, without the driver's mutex.
#include "src/sim/cuda/graph/graph.h"

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kNoDestructorSync = 1;  // CUuserObject_flags; required
constexpr unsigned kMove = 1;  // CUuserObjectRetain_flags: move the program's references

}  // namespace

UserObjects::DeferredDestroyCalls::~DeferredDestroyCalls() {
  for (const auto& [destroy, object] : calls_) destroy(object);
}

UserObjectTag* UserObjects::Create(void* object, HostFunction destroy, unsigned references) {
  auto created = std::make_unique<UserObjectTag>(UserObjectTag{object, destroy, references});
  UserObjectTag* handle = created.get();
  objects_[handle] = std::move(created);
  return handle;
}

void UserObjects::Release(UserObjectTag* object, unsigned references,
                          DeferredDestroyCalls* deferred) {
  object->references -= std::min(references, object->references);
  if (object->references != 0) return;
  deferred->calls_.emplace_back(object->destroy, object->object);
  objects_.erase(object);
}

void UserObjects::Release(const GraphTag& graph, DeferredDestroyCalls* deferred) {
  for (const auto& [object, references] : graph.user_objects) Release(object, references, deferred);
  for (const auto& node : graph.nodes) {
    for (const auto& child : node->children) Release(*child, deferred);
  }
}

void UserObjects::Retain(const GraphTag& graph) {
  for (const auto& [object, references] : graph.user_objects) object->references += references;
  for (const auto& node : graph.nodes) {
    for (const auto& child : node->children) Retain(*child);
  }
}

CUDA_EXPORT Result cuUserObjectCreate(UserObject* object, void* pointer, HostFunction destroy,
                                      unsigned references, unsigned flags) {
  CUDA_ENTER(Call, call);
  if (object == nullptr || destroy == nullptr || references == 0 || flags != kNoDestructorSync) {
    return Result::kInvalidValue;
  }
  *object = call->user_objects().Create(pointer, destroy, references);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuUserObjectRetain(UserObject object, unsigned count) {
  CUDA_ENTER(Call, call);
  if (count == 0 || !call->user_objects().IsObject(object)) return Result::kInvalidValue;
  object->references += count;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuUserObjectRelease(UserObject object, unsigned count) {
  UserObjects::DeferredDestroyCalls deferred;
  CUDA_ENTER(Call, call);
  if (count == 0 || !call->user_objects().IsObject(object)) return Result::kInvalidValue;
  call->user_objects().Release(object, count, &deferred);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphRetainUserObject(Graph graph, UserObject object, unsigned count,
                                           unsigned flags) {
  CUDA_ENTER(Call, call);
  if (count == 0 || flags > kMove || !call->graphs().IsGraph(graph) ||
      !call->user_objects().IsObject(object)) {
    return Result::kInvalidValue;
  }
  if (flags != kMove) object->references += count;
  graph->user_objects[object] += count;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphReleaseUserObject(Graph graph, UserObject object, unsigned count) {
  UserObjects::DeferredDestroyCalls deferred;
  CUDA_ENTER(Call, call);
  if (count == 0 || !call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  const auto found = graph->user_objects.find(object);
  if (found == graph->user_objects.end() || found->second < count) return Result::kInvalidValue;
  found->second -= count;
  if (found->second == 0) graph->user_objects.erase(found);
  call->user_objects().Release(object, count, &deferred);
  return Result::kSuccess;
}

}  // namespace tessera::cuda
