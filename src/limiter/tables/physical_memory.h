// SPDX-License-Identifier: Apache-2.0
// Device memory that programs create without addresses (cuMemCreate), and its mappings. A piece is
// charged while the program holds a handle or a mapping of it, or while a copy of an exporting
// descriptor is open. Afterwards the driver frees the memory.
//
// Shared pieces. A process that imports a piece is charged for the piece, too, because the exporter
// may end first. If this process has several handles of one piece, one shared charge pays for all
// of them. The marks of descriptors show which handles belong to one piece (shared_handles.h). The
// region lists which processes of the container are charged for the same piece
// (region/shared_pieces.h). If a descriptor cannot be marked, the exporting process stays charged
// until it ends, and an importer is charged for the part that it maps.
//
// Probes. While descriptors of an exported piece may be open, this process keeps one descriptor of
// its own, the probe, for all exports of the piece. The probe shows whether other descriptors are
// open. The limiter checks the probe of a piece when its last handle is released. It checks all
// probes (a sweep) when their number has doubled since the last sweep, when the process has no free
// descriptor, when the limit is reached, and when the program queries free memory.
//
// The driver may give a released handle or address to another thread before this table removes it.
// So an entry is removed only after the driver's function has returned. If a new handle or address
// is still in the table, the old entry ends. A caller that ends an entry passes the value that
// NextMoment returned before the driver call, so that entries added since then stay. Threads: any.
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
  using EndFunction = void (*)(void* argument, const EndedCharge& ended);
  // `end` is called for each charge that ends, without a lock held. Before the call, this process
  // is removed from the holders of the piece in `container_pieces`.
  void Open(EndFunction end, void* argument, SharedPieces* container_pieces) {
    on_end_ = end, argument_ = argument, container_pieces_ = container_pieces;
  }
  // Removes all entries, in a child after fork.
  void Reset();

  // Adds a piece that the driver has created. False: out of host memory.
  bool Add(uint64_t handle, int gpu, uint64_t bytes);
  // Adds a piece that the driver has imported. `mark` is the mark of its descriptor, or empty. Sets
  // `*charge` to the bytes that the caller must charge; 0: this process already pays for the piece.
  // False: out of host memory.
  bool AddImported(uint64_t handle, int gpu, const PieceMark& mark, uint64_t* charge);
  // Whether this process pays for the piece with this id.
  bool IsChargedFor(uint64_t id);
  // Records an export of the piece by the descriptor `fd`, and marks the descriptor. An export
  // without a descriptor (`fd` is -1) cannot be tracked. Makes system calls. Unknown handles have
  // no effect. The caller holds a handle of the piece during the call.
  void AddExport(uint64_t handle, int fd);
  // Checks all probes. Ends the charges of pieces without handles, mappings and open descriptors.
  // Makes system calls if there are probes.
  void EndChargesOfClosedExports();
  // An imported piece of unknown size is charged as far as the program maps it. Before a mapping of
  // the first `bytes` of a piece, BytesToGrow returns the bytes to reserve, and sets `*gpu`.
  // Afterwards Grow records the mapping, and returns the bytes to charge.
  uint64_t BytesToGrow(uint64_t handle, uint64_t bytes, int* gpu);
  uint64_t Grow(uint64_t handle, uint64_t bytes);

  // Retain adds a handle of a piece, Release removes one. Unknown handles have no effect.
  void Retain(uint64_t handle);
  void Release(uint64_t handle, uint64_t call_moment);
  // Adds a mapping of a piece. False: out of host memory.
  bool Map(uint64_t address, uint64_t handle);
  // Ends all mappings in the range, which begin at multiples of `step`.
  void Unmap(uint64_t address, uint64_t bytes, uint64_t step, uint64_t call_moment);

 private:
  struct Piece {
    uint64_t bytes;
    uint64_t added_moment;  // NextMoment when it was added
    uint32_t references;    // handles and mappings
    int gpu;
    uint64_t shared_charge;  // key in shared_charges_; 0: the piece has its own charge
    bool is_growing;         // imported, of unknown size: charged as far as it is mapped
  };
  // The charge of a piece that was exported or imported.
  struct SharedCharge {
    uint64_t bytes;
    int gpu;
    uint32_t pieces;    // entries of pieces_ for which the charge pays
    bool is_permanent;  // an export cannot be tracked: the charge stays until the process ends
  };
  // The first sweep takes place at this number of probes.
  static constexpr uint32_t kFirstSweepCount = 16;
  struct Mapping {
    uint64_t handle;
    uint64_t added_moment;
  };
  // REQUIRES lock_. Adds a piece, which the caller fills in. Null: out of host memory. `*ended`
  // becomes the charge of an older piece with the same handle.
  Piece* AddPiece(uint64_t handle, EndedCharge* ended);
  // REQUIRES lock_.
  EndedCharge DropReference(uint64_t handle);
  EndedCharge EndSharedChargeIfUnused(uint64_t id);
  bool JoinSharedCharge(uint64_t id, Piece* piece);
  // Closes the probe of the piece if no other descriptor of the piece is open. True: no export
  // needs the charge any more.
  bool CloseProbeIfUnused(uint64_t id, const SharedCharge& shared);
  SharedCharge* FindOrAddSharedCharge(Piece* piece);
  bool MarkExport(int fd, uint64_t id, const SharedCharge& shared);
  // Returns the id of the shared charge; 0: the piece is unknown. Sets `*out_of_fds` if the process
  // has no free descriptor for a probe, so that the caller can retry. If `out_of_fds` is null, the
  // charge becomes permanent instead.
  uint64_t RecordExport(uint64_t handle, int fd, SharedCharge* recorded, bool* out_of_fds);
  void NotifyEnd(const EndedCharge& ended) {
    if (ended.gpu >= 0) on_end_(argument_, ended);
  }

  SpinLock lock_;
  Table<Piece> pieces_ = {};
  Table<Mapping> mappings_ = {};
  Table<SharedCharge> shared_charges_ = {};  // by the id of the piece
  Table<int> probes_ = {};                   // descriptors by the id of the piece
  std::atomic<uint32_t> probe_count_{0};
  // probe_count_ at which the next sweep is due.
  std::atomic<uint32_t> next_sweep_count_{kFirstSweepCount};
  SharedPieces* container_pieces_ = nullptr;
  EndFunction on_end_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace tessera::limiter
