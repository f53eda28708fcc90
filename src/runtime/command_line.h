// SPDX-License-Identifier: Apache-2.0
// Parses the command line of an OCI runtime as runc and crun do: global options, a verb, the verb's
// options, the container's id. It keeps only the values that Tessera needs; argv is passed on
// unchanged. Pure; allocates nothing, because every exec probe of a node passes through it.
#pragma once

namespace tessera::runtime {

// Pointers into argv; null if not given.
struct CommandLine {
  const char* verb = nullptr;
  const char* bundle = nullptr;          // for create and run
  const char* config_file = nullptr;     // crun's --config for create and run
  const char* process_file = nullptr;    // for exec: has the process document
  const char* resources_file = nullptr;  // for update: has the limits; "-": standard input
  const char* log_file = nullptr;
  bool log_json = false;

  // True for create and run.
  bool creates_container() const;
};

// Knows which options take a value, so that a value is never read as the verb: the verb of
// `--root create state x` is state.
CommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace tessera::runtime
