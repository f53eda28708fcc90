// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/explain.h"

#include <unistd.h>

#include <cstring>

#include "src/base/file.h"

namespace tessera::runtime {
namespace {

constexpr std::string_view kUsage = "usage: tessera-runtime explain [--bundle DIR]\n";

Result<std::string> BundleOf(int argc, char** argv) {
  std::string bundle = ".";
  for (int i = 2; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--bundle=")) {
      bundle = argument.substr(std::strlen("--bundle="));
    } else if ((argument == "--bundle" || argument == "-b") && i + 1 < argc) {
      bundle = argv[++i];
    } else {
      return Error(Code::kInvalidArgument, "\"{}\" is not known here; {}", argument, kUsage);
    }
  }
  return bundle;
}

Result<std::string> Explain(int argc, char** argv, const Result<Options>& options) {
  ASSIGN_OR_RETURN(const std::string bundle, BundleOf(argc, argv));
  if (!options.ok()) return options.status();
  ASSIGN_OR_RETURN(const auto document, oci::ConfigDocument::Load(bundle));
  ASSIGN_OR_RETURN(const Decision decision, Decide(document, *options));
  return DescribeDecision(decision);
}

}  // namespace

std::string DescribeDecision(const Decision& decision) {
  std::string text = fmt::format("decision   {}\n", decision.reason);
  if (!decision.injection) return text + "injected   nothing\n";
  const oci::Injection& injection = *decision.injection;
  const std::string& dir = decision.placement->driver_dir;
  for (const oci::DeviceNode& node : injection.devices) {
    text += fmt::format("device     {} {}:{}\n", node.path, node.major_number, node.minor_number);
  }
  text += fmt::format("driver     {} in {}\n", injection.driver.version, injection.driver.root);
  for (const oci::DriverLibrary& library : injection.driver.libraries) {
    text += fmt::format("library    {}/lib/{} ({}) from {}\n", dir, library.soname,
                        library.file_name, library.host_path);
  }
  for (const oci::DriverBinary& binary : injection.driver.binaries) {
    text += fmt::format("binary     {}/bin/{} from {}\n", dir, binary.name, binary.host_path);
  }
  for (const oci::Mount& mount : injection.mounts) {
    text += fmt::format("mount      {} from {}\n", mount.destination, mount.source);
  }
  for (const auto& [name, value] : injection.env) text += fmt::format("env        {}={}\n", name, value);
  text += decision.placement->ld_cache
              ? std::string("libraries are found through /etc/ld.so.cache\n")
              : fmt::format("libraries are found through LD_LIBRARY_PATH: {}\n",
                            decision.placement->why_no_cache);
  for (const std::string& note : injection.driver.notes) text += fmt::format("note       {}\n", note);
  return text;
}

int ExplainMain(int argc, char** argv, const Result<Options>& options) {
  const Result<std::string> text = Explain(argc, argv, options);
  if (text.ok()) {
    (void)WriteFd(STDOUT_FILENO, *text).ok();
    return 0;
  }
  const std::string message = "tessera-runtime: " + text.status().message() + "\n";
  (void)WriteFd(STDERR_FILENO, message).ok();
  return InfoOf(text.status().code()).exit_code;
}

}  // namespace tessera::runtime
