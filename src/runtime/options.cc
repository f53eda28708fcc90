// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/options.h"

#include <fcntl.h>

#include <cerrno>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "src/base/file.h"

namespace tessera::runtime {
namespace {

constexpr size_t kMaxFileSize = 1u << 20;
constexpr std::string_view kRuntimesFormat =
    "a list of names or absolute paths, [\"runc\", \"crun\"]";

class OptionsReader {
 public:
  explicit OptionsReader(const std::string& path) : path_(path) {}

  Result<Options> Read(const toml::table& table) {
    for (const auto& [key, node] : table) RETURN_IF_ERROR(ReadKey(key.str(), node));
    return std::move(options_);
  }

 private:
  Status ReadKey(std::string_view key, const toml::node& node) {
    if (key == "runtimes") {
      if (const auto* list = node.as_array(); list == nullptr || list->empty()) {
        return InvalidValue(key, node, kRuntimesFormat);
      }
      return ReadList(key, node, kRuntimesFormat, &options_.runtimes);
    }
    if (key == "privileged-namespaces") {
      return ReadList(key, node, "a list of namespaces in quotes, or []",
                      &options_.privileged_namespaces);
    }
    if (key == "driver-root") return ReadPath(key, node, &options_.driver_root);
    if (key == "dev-root") return ReadPath(key, node, &options_.dev_root);
    if (key == "driver-tree-dir") {
      if (node.value<std::string>() != "") return ReadPath(key, node, &options_.driver_tree_dir);
      options_.driver_tree_dir.clear();
      return Status::Ok();
    }
    if (key == "grant-socket") return ReadPath(key, node, &options_.grant_socket);
    if (key == "log") return ReadPath(key, node, &options_.log);
    if (key == "grant-timeout-seconds") {
      const auto seconds = node.value<int64_t>();
      if (!seconds || *seconds < 0 || *seconds > 600) {
        return InvalidValue(key, node, "a number from 0 to 600");
      }
      options_.grant_timeout = std::chrono::seconds(*seconds);
      return Status::Ok();
    }
    if (key == "accept-visible-devices-envvar") {
      if (!node.is_boolean()) return InvalidValue(key, node, "true or false");
      options_.accept_visible_devices_envvar = node.value<bool>().value_or(true);
      return Status::Ok();
    }
    return Error(
        Code::kInvalidArgument,
        "{}:{}: unknown key \"{}\": correct or remove it (runtimes, "
        "driver-root, dev-root, driver-tree-dir, grant-socket, grant-timeout-seconds, log, "
        "accept-visible-devices-envvar, privileged-namespaces)",
        path_, node.source().begin.line, key);
  }

  Status ReadList(std::string_view key, const toml::node& node, std::string_view expected,
                  std::vector<std::string>* to) {
    const toml::array* list = node.as_array();
    if (list == nullptr) return InvalidValue(key, node, expected);
    to->clear();
    for (const toml::node& item : *list) {
      const auto name = item.value<std::string>();
      if (!name || name->empty()) return InvalidValue(key, item, expected);
      to->push_back(*name);
    }
    return Status::Ok();
  }

  Status ReadPath(std::string_view key, const toml::node& node, std::string* to) {
    const auto text = node.value<std::string>();
    if (!text || !text->starts_with('/'))
      return InvalidValue(key, node, "an absolute path in quotes");
    *to = *text;
    return Status::Ok();
  }

  Status InvalidValue(std::string_view key, const toml::node& node,
                      std::string_view expected) const {
    return Error(Code::kInvalidArgument, "{}:{}: \"{}\" must be {}", path_,
                 node.source().begin.line, key, expected);
  }

  const std::string& path_;
  Options options_;
};

}  // namespace

Result<Options> LoadOptions(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT || errno == ENOTDIR) return Options{};
    return Status::FromErrno(path, errno);
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFd(fd.get(), kMaxFileSize).Annotate(path));
  return ParseOptions(text, path);
}

Result<Options> ParseOptions(const std::string& text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(std::string_view(text), std::string_view(path));
  if (!parsed) {
    return Error(Code::kInvalidArgument,
                 "{}:{}: {}: correct the line, or remove the file to use the defaults", path,
                 parsed.error().source().begin.line, parsed.error().description());
  }
  return OptionsReader(path).Read(parsed.table());
}

}  // namespace tessera::runtime
