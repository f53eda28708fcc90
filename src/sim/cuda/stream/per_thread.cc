// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/stream/per_thread.h"

#include <mutex>
#include <vector>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

struct OwnStream {
  StreamTag* stream;
  uint64_t id;  // differs from that of a later stream at the same address

  bool IsAlive(Driver& driver) const { return driver.IsStream(stream) && stream->id == id; }
};

// The streams of a thread.
class ThreadStreams {
 public:
  // Runs at the end of the thread. A later destructor of another library may still call the driver.
  ~ThreadStreams() {
    Driver& driver = Driver::Get();
    if (streams_ == nullptr || driver.forked()) return;
    {
      std::lock_guard lock(driver.mutex());
      for (const OwnStream& own : *streams_) {
        if (own.IsAlive(driver)) driver.DestroyStream(own.stream);
      }
    }
    delete streams_;
    streams_ = nullptr;
  }

  StreamTag* Of(Driver& driver, ContextTag* context) {
    if (streams_ == nullptr) streams_ = new std::vector<OwnStream>();
    std::erase_if(*streams_, [&](const OwnStream& own) { return !own.IsAlive(driver); });
    for (const OwnStream& own : *streams_) {
      if (own.stream->context == context) return own.stream;
    }
    StreamTag* created = driver.CreateStream(context, 0, 0);
    streams_->push_back({created, created->id});
    return created;
  }

 private:
  std::vector<OwnStream>* streams_ = nullptr;
};

thread_local ThreadStreams own_streams;

}  // namespace

StreamTag* Driver::FindStream(ContextTag* context, Stream stream) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  const bool own = number == kStreamPerThread || (number == 0 && PerThreadDefaultScope::IsActive());
  if (own) return own_streams.Of(*this, context);
  if (number <= kStreamLegacy) return &context->legacy;
  return streams_.contains(stream) ? stream : nullptr;
}

}  // namespace tessera::cuda
