// SPDX-License-Identifier: Apache-2.0
#include "src/agent/agent_options.h"

#include <fmt/ranges.h>

#include <utility>

#include "src/base/file.h"
#include "src/net/address.h"

namespace tessera::agent {
namespace {

// Rejects a namespace that is in both options: a process that may run without the limiter must not
// be killed for running without it.
Status CheckLimitNamespaces(const AgentOptions& options) {
  const std::set<std::string>& open = options.limits_fail_open;
  const std::set<std::string>& stop = options.limits_stop_bypass;
  if (open.empty() || stop.empty()) return Status::Ok();
  for (const std::string& ns : stop) {
    if (ns != "*" && !open.contains(ns) && !open.contains("*")) continue;
    return Error(Code::kInvalidArgument,
                 "--limits-stop-bypass={}: --limits-fail-open={} lets processes run without a "
                 "limiter: name each namespace in one of the two",
                 ns, fmt::join(open, ","));
  }
  return Status::Ok();
}

}  // namespace

Status CompleteOptions(AgentOptions* options) {
  if (options->driver_root.empty()) options->driver_root = "/";
  if (options->driver_root_ctr_path.empty()) options->driver_root_ctr_path = options->driver_root;
  if (options->dev_root.empty()) {
    const bool has_dev = PathExists(JoinPath(options->driver_root_ctr_path, "dev"));
    options->dev_root = has_dev ? options->driver_root : "/";
  }
  if (options->dev_root_ctr_path.empty()) {
    options->dev_root_ctr_path = options->dev_root == options->driver_root
                                     ? options->driver_root_ctr_path
                                     : options->dev_root;
  }
  for (const auto& [flag, path] :
       {std::pair("--driver-root", options->driver_root),
        std::pair("--dev-root", options->dev_root), std::pair("--state-dir", options->state_dir),
        std::pair("--grant-socket", options->grant_socket),
        std::pair("--engine-host-root", options->engine_host_root),
        std::pair("--limits-dir", options->limits_dir.empty() ? "/" : options->limits_dir)}) {
    if (path.empty() || path[0] != '/') {
      return Error(Code::kInvalidArgument, "{}: \"{}\" is not an absolute path", flag, path);
    }
  }
  RETURN_IF_ERROR(CheckLimitNamespaces(*options));
  if (!options->metrics_address.empty()) {
    RETURN_IF_ERROR(
        net::ParseAddress(options->metrics_address).status().Annotate("--metrics-address"));
  }
  if (!options->manager_address.empty()) {
    RETURN_IF_ERROR(
        net::ParseAddress(options->manager_address).status().Annotate("--gpu-manager-address"));
  }
  return Status::Ok();
}

}  // namespace tessera::agent
