// SPDX-License-Identifier: Apache-2.0
// The driver's files as one folder of the host, for all containers that get the same ones, so that
// each container needs one mount instead of one for each file: runc takes a quarter of a
// millisecond for each.
//
//   <dir>/lock
//   <dir>/trees/                 a tmpfs that hands on no mounts to other namespaces
//   <dir>/trees/<key>/           a tmpfs: links, and bind mounts of the driver's files; read only
//
// A container gets the tree by a recursive bind, and keeps its own copies of the mounts: what
// becomes of the tree on the host does not matter to it. The trees are a cache: they may be
// unmounted at any time ("umount --recursive --lazy <dir>/trees"), are gone after a reboot, and are
// made again when needed. Nothing is copied, and nothing is written where the driver lies.
//
// Not for containers' own files (Stage). Threads and processes: any, at once; makers wait for a
// lock. Cost: two stat(2) for each file; the first time three mount(2) besides.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/oci/tree.h"

namespace tessera::oci {

// Makes, or finds, the tree that holds what `tree` says, and gives its path. The key follows from
// names and from the files' inodes, so another driver gives another tree. `family` names trees that
// replace each other, the trees of one driver root for example: those that show other files under
// the same names are unmounted then. A tree that was cut off, or from which somebody unmounted a
// file, is made anew. PERMISSION_DENIED: mounts need root. RESOURCE_EXHAUSTED: there are
// kMaxSharedTrees, which nobody reaches without trying. UNAVAILABLE: another process holds the
// lock. NOT_FOUND, ABORTED: the driver is being replaced. Whatever the error, no half-made tree
// stays. `label`: SELinux's for the tree's folders and links, without which a confined container
// cannot search them; empty without SELinux. The driver's files keep their own, which containers
// may read.
Result<std::string> ShareTree(const Tree& tree, const std::string& family, const std::string& dir,
                              const std::string& label = "");

// A container's label without its categories, which keep containers apart:
// "…:container_file_t:s0:c1,c2" -> "…:container_file_t:s0", which all may read. Empty where
// `mount_label` is not a label.
std::string LabelForAll(std::string_view mount_label);

// Unmounts and removes all trees of `dir`, and says how many there were; 0 also where there is no
// such folder. Running containers keep their copies; one that is being started at this moment may
// fail. The lock stays. PERMISSION_DENIED, UNAVAILABLE: as above.
Result<size_t> DropSharedTrees(const std::string& dir);

// Each set of capabilities that an image asks for may make one.
inline constexpr size_t kMaxSharedTrees = 16;

}  // namespace tessera::oci
