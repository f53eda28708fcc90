// SPDX-License-Identifier: Apache-2.0
// Explains why a process of a limited container uses a GPU without a limiter, and kills such a
// process.
//
// The cause is read from the process's memory map. A process controls its own map, so the cause is
// advice for people, and no decision depends on it.
//
// Threads: any. Reading the memory map of another process can hang, because that process can hold
// the lock of its own map: call DescribeBypass on a thread of its own, with a deadline.
#pragma once

#include <string>
#include <string_view>

#include "src/agent/pods/process_owner.h"
#include "src/base/status.h"

namespace tessera::agent {

// The reason why the process is not counted, with a remedy, as the end of a sentence. `maps`: the
// text of /proc/<pid>/maps.
std::string DescribeBypass(std::string_view maps);

// Sends SIGKILL to the process if it belongs to `owner`. NOT_FOUND: the process has ended, or its
// pid belongs to another container now. UNIMPLEMENTED: the kernel is older than Linux 5.3 and has
// no pidfd_open, without which the pid could be reused before the signal.
Status KillProcessOf(const ProcessOwner& owner, const std::string& proc_root, int pid);

}  // namespace tessera::agent
