// SPDX-License-Identifier: Apache-2.0
// Device memory that programs create without addresses (cuMemCreate), and its mappings. A piece is
// charged while the program holds a handle or a mapping of it, or while a copy of an exporting
// descriptor is open. After that the driver frees it.
//
// Shared pieces. A process that imports a piece is charged for it, too: the exporter may end first.
// If this process has several handles of one piece, the piece is charged once. Marks identify such
// handles (shared_handles.h). The region knows which other processes of the container are charged
// for it (region/shared_pieces.h). If a descriptor cannot be marked, its exporter stays charged
// until its process ends, and an importer is charged for the part that it maps.
//
// Probes. While descriptors of a piece may be open, this process keeps one descriptor of its own
// (a probe) for all exports of the piece. A release of the last handle looks at once whether all
// other descriptors are closed. Pieces whose descriptors are closed later are found by a sweep of
// all probes: when an export has doubled their number since the last sweep, when no descriptor is
// left for a probe, when the limit is reached, and when the program queries free memory.
//
// The driver may give a released handle or address to another thread before this table removes it.
// So the table changes only after the driver's answer. A caller that receives a handle or an
// address that is still in the table ends the old entry. A caller that ends an entry passes the
// NextMoment from before its driver call, so that younger entries stay. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/limiter/memory/shared_handles.h"
#include "src/limiter/region/shared_pieces.h"
#include "src/limiter/region/spin_lock.h"
#include "src/limiter/tables/table.h"

namespace tessera::limiter {

// A charge that has ended.
struct EndedCharge {
  int gpu = -1;
  uint64_t bytes = 0;
};

class PhysicalPieces {
 public:
  using End = void (*)(void* argument, const EndedCharge& ended);
  // `end` is called without a lock held for each charge that ends, after this process is removed
  // from the piece's holders in `shared`.
  void Open(End end, void* argument, SharedPieces* shared) {
    end_ = end, argument_ = argument, shared_ = shared;
  }
  // Removes all entries, in a child after fork.
  void Reset();

  // Adds a piece that the driver has created. False: out of host memory.
  bool Add(uint64_t handle, int gpu, uint64_t bytes);
  // Adds a piece that the driver has imported. `mark` is the mark of its descriptor, or empty. The
  // charge is `*charge` bytes, 0 for a piece that this process already pays for. False: out of host
  // memory.
  bool AddImported(uint64_t handle, int gpu, const SharedMark& mark, uint64_t* charge);
  // Whether this process pays for the piece with that id.
  bool IsChargedFor(uint64_t id);
  // Records an export of the piece by the descriptor `fd`, which it marks; -1: an export that
  // cannot be tracked. Makes system calls. Unknown handles have no effect. The caller holds a
  // handle of the piece during the call.
  void AddExport(uint64_t handle, int fd);
  // Ends charges of pieces that only closed descriptors held, and closes their probes. Makes system
  // calls if there are probes.
  void EndClosedExports();
  // Growth returns the additional bytes to charge for an imported piece of unknown size, and its
  // GPU, if the program maps the first `bytes` of the piece. Grow records the mapping and returns
  // the bytes that the caller must charge.
  uint64_t Growth(uint64_t handle, uint64_t bytes, int* gpu);
  uint64_t Grow(uint64_t handle, uint64_t bytes);

  // Retain adds a handle of a piece, Release removes one. Unknown handles have no effect.
  void Retain(uint64_t handle);
  void Release(uint64_t handle, uint64_t moment);
  // False: out of host memory.
  bool Map(uint64_t address, uint64_t handle);
  // Ends all mappings in the range, which begin at multiples of `step`.
  void Unmap(uint64_t address, uint64_t bytes, uint64_t step, uint64_t moment);

 private:
  struct Piece {
    uint64_t bytes;
    uint64_t born;        // NextMoment at its creation
    uint32_t references;  // handles and mappings
    int gpu;
    uint64_t shared_charge;  // key in shared_charges_; 0: the piece has its own charge
    bool is_growing;         // imported, of unknown size
  };
  // The charge of a piece that was exported or imported.
  struct SharedCharge {
    uint64_t bytes;
    int gpu;
    uint32_t pieces;
    bool is_permanent;  // an export cannot be tracked: the charge stays until the process ends
  };
  // The first sweep takes place at this number of probes.
  static constexpr uint32_t kFirstSweep = 16;
  struct Mapping {
    uint64_t handle;
    uint64_t born;
  };
  static uint32_t HashKey(uint64_t key) { return uint32_t(key * 0x9e3779b97f4a7c15u >> 32); }
  // REQUIRES lock_.
  EndedCharge DropReference(uint64_t handle);
  EndedCharge EndIfUnused(uint64_t id);
  bool JoinSharedCharge(uint64_t id, Piece* piece);
  // Closes the probe of the piece if no other descriptor of the piece is open.
  bool HasOpenDescriptors(uint64_t id, const SharedCharge& shared);
  SharedCharge* SharedChargeFor(Piece* piece);
  bool Mark(int fd, uint64_t id, const SharedCharge& shared);
  // The id of the shared charge; 0: the piece is unknown. `*lacks_fd` is set if the process has no
  // free descriptor for a probe; null: the export then cannot be tracked.
  uint64_t RecordExport(uint64_t handle, int fd, SharedCharge* recorded, bool* lacks_fd);
  void Report(const EndedCharge& ended) {
    if (ended.gpu >= 0) end_(argument_, ended);
  }

  SpinLock lock_;
  Table<Piece, HashKey> pieces_ = {};
  Table<Mapping, HashKey> mappings_ = {};
  Table<SharedCharge, HashKey> shared_charges_ = {};  // by the id of the piece
  Table<int, HashKey> probes_ = {};                   // descriptors by the id of the piece
  std::atomic<uint32_t> probe_count_{0};
  std::atomic<uint32_t> sweep_at_{kFirstSweep};  // probe_count_ at which the next sweep is due
  SharedPieces* shared_ = nullptr;
  End end_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace tessera::limiter
