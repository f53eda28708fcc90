// SPDX-License-Identifier: Apache-2.0
// Processes of a limited container that use a GPU without a limiter: why, and how to stop one.
//
// The cause is read from the process's memory map. A process can map and unmap what it likes, so
// the cause is advice for people and decides nothing.
//
// Threads: any. Reading the memory map of another process can hang, because that process can hold
// the lock of its own map: call DescribeBypass on a thread of its own, with a deadline.
#pragma once

#include <string>
#include <string_view>

#include "src/agent/pods/process_owner.h"
#include "src/base/status.h"

namespace tessera::agent {

// Why the process is not counted, and what to do about it, as the end of a sentence. `maps`: the
// text of /proc/<pid>/maps.
std::string DescribeBypass(std::string_view maps);

// Sends SIGKILL to the process, if it is one of `owner`. NOT_FOUND: it has ended, or its pid
// belongs to another container now. UNIMPLEMENTED: the kernel is older than Linux 5.3 and has no
// descriptors of processes, without which a pid may pass to another process before the signal.
Status KillProcessOf(const ProcessOwner& owner, const std::string& proc_root, int pid);

}  // namespace tessera::agent
