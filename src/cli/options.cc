// SPDX-License-Identifier: Apache-2.0
#include "src/cli/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "src/cli/output/text.h"
#include "src/cli/session.h"

namespace tessera::cli {
namespace {

bool UseColor() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

std::string NameWithoutKind(const std::string& argument,
                            std::initializer_list<std::string_view> kinds) {
  const size_t slash = argument.find('/');
  const bool is_kind = slash != std::string::npos &&
                       std::ranges::find(kinds, argument.substr(0, slash)) != kinds.end();
  return is_kind ? argument.substr(slash + 1) : argument;
}

}  // namespace

void AddClusterOptions(CLI::App* app, ClusterOptions* options) {
  app->add_option("--kubeconfig", options->kubeconfig,
                  "kubeconfig file; default: $KUBECONFIG, else ~/.kube/config, else the pod's "
                  "service account");
  app->add_option("--context", options->context,
                  "context of the kubeconfig; default: the current one");
  app->add_option("--as", options->as, "user to impersonate");
  app->add_option("--as-group", options->as_groups, "group to impersonate; may be repeated")
      ->option_text("GROUP")
      ->allow_extra_args(false);
  app->add_option("--as-uid", options->as_uid, "UID to impersonate");
  app->add_option("--timeout", options->timeout_s,
                  "how long to wait for the cluster: seconds, or with a unit, such as 2m")
      ->transform(
          CLI::AsNumberWithUnit(std::map<std::string, int>{{"s", 1}, {"m", 60}, {"h", 3600}})
              .description(""))
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
}

Result<kube::Config> ConfigOf(const ClusterOptions& options) {
  if (options.as.empty() && (!options.as_groups.empty() || !options.as_uid.empty())) {
    return Error(Code::kInvalidArgument, "--as-group and --as-uid need a user: --as USER");
  }
  Result<kube::Config> config = FindClusterConfig(options.kubeconfig, options.context, ::getenv);
  if (config.ok() && !options.as.empty()) {
    config->impersonation = {options.as, options.as_uid, options.as_groups, {}};
  }
  return config;
}

void AddNamespaceOption(CLI::App* app, NamespaceOptions* options, const char* help) {
  app->add_option("-n,--namespace", options->ns, help);
}

void AddAllNamespacesOption(CLI::App* app, NamespaceOptions* options) {
  app->add_flag("-A,--all-namespaces", options->all_namespaces, "all namespaces");
}

void AddOutputOption(CLI::App* app, StyleOptions* options) {
  app->add_option("-o,--output", options->output,
                  "table, wide, json, yaml, jsonpath=TEMPLATE or jsonpath-file=FILE; for lists "
                  "also name, custom-columns=SPEC or custom-columns-file=FILE")
      ->option_text("FORMAT");
}

void AddListOptions(CLI::App* app, StyleOptions* options) {
  AddOutputOption(app, options);
  app->add_option("--sort-by", options->sort_by,
                  "path of the field to sort by, such as .metadata.name")
      ->option_text("PATH");
  app->add_option("--field-selector", options->field_selector,
                  "only items with these values in their fields, as -o json shows them: "
                  "node=n1,healthy!=true")
      ->option_text("FIELD=VALUE,...");
  app->add_flag("--no-headers", options->no_headers, "omit the header");
}

void AddSelectorOption(CLI::App* app, std::string* selector, const char* help) {
  app->add_option("-l,--selector", *selector, help)->option_text("LABEL=VALUE,...");
}

void AddWatchOption(CLI::App* app, bool* watch) {
  app->add_flag("-w,--watch", *watch, "keep running, and print again after each change");
}

std::string PodNameIn(const std::string& argument) {
  return NameWithoutKind(argument, {"pod", "pods", "po"});
}

std::string NodeNameIn(const std::string& argument) {
  return NameWithoutKind(argument, {"node", "nodes", "no"});
}

std::pair<std::string, std::string> PodKeyIn(const std::string& argument, const std::string& ns) {
  const std::string name = PodNameIn(argument);
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return {ns, name};
  return {name.substr(0, slash), name.substr(slash + 1)};
}

Status CheckNameWithoutSelector(const std::string& name, const std::string& selector,
                                const StyleOptions& style, const NamespaceOptions& ns) {
  const char* conflicting = !selector.empty()               ? "-l"
                            : !style.field_selector.empty() ? "--field-selector"
                            : ns.all_namespaces             ? "-A"
                                                            : nullptr;
  if (name.empty() || conflicting == nullptr) return Status::Ok();
  return Error(Code::kInvalidArgument, "{} with the name {}: use either of them", conflicting,
               name);
}

Result<Style> StyleOf(const StyleOptions& options) { return MakeStyle(options, UseColor()); }

int Fail(const Status& status) {
  std::fprintf(stderr, "tessera: %s\n", Printable(status.message()).c_str());
  return InfoOf(status.code()).exit_code;
}

int PrintOut(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) == 0) return 0;
  return Fail(Status::FromErrno("stdout", errno));
}

}  // namespace tessera::cli
