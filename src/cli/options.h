// SPDX-License-Identifier: Apache-2.0
// Options that several verbs share, named as in kubectl. Included only in src/cli.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/cli/output/listing.h"
#include "src/kube/client.h"
#include "src/kube/config.h"

namespace CLI {
class App;
}

namespace tessera::cli {

struct ClusterOptions {
  std::string kubeconfig, context;
  std::string as, as_uid;
  std::vector<std::string> as_groups;
  int timeout_s = 30;

  Duration timeout() const { return std::chrono::seconds(timeout_s); }
};
void AddClusterOptions(CLI::App* app, ClusterOptions* options);
// FAILED_PRECONDITION lists the places searched. INVALID_ARGUMENT: a group without a user.
Result<kube::Config> ConfigOf(const ClusterOptions& options);

// The options that select the namespace of a verb.
struct NamespaceOptions {
  std::string ns;  // "": the namespace of the context
  bool all_namespaces = false;

  // "" for all namespaces.
  std::string Resolve(const std::string& default_namespace) const {
    return all_namespaces ? "" : ns.empty() ? default_namespace : ns;
  }
};
void AddNamespaceOption(CLI::App* app, NamespaceOptions* options,
                        const char* help = "default: the context's namespace");
void AddAllNamespacesOption(CLI::App* app, NamespaceOptions* options);

// -o alone: for answers that are not lists.
void AddOutputOption(CLI::App* app, StyleOptions* options);
// -o, --sort-by, --field-selector and --no-headers.
void AddListOptions(CLI::App* app, StyleOptions* options);
void AddSelectorOption(CLI::App* app, std::string* selector, const char* help);
void AddWatchOption(CLI::App* app, bool* watch);

// The name in NAME, or in kubectl's notation KIND/NAME.
std::string PodNameIn(const std::string& argument);
std::string NodeNameIn(const std::string& argument);
// Namespace and name in NAME, NAMESPACE/NAME or pod/NAME. `ns`: the namespace of NAME alone.
std::pair<std::string, std::string> PodKeyIn(const std::string& argument, const std::string& ns);
// As in kubectl, the name of an object cannot be combined with a selector or with all namespaces.
// INVALID_ARGUMENT: `name` is not "", and such an option is given.
Status CheckNameWithoutSelector(const std::string& name, const std::string& selector,
                                const StyleOptions& style, const NamespaceOptions& ns);

// MakeStyle for standard output: colors only on a terminal, and not with NO_COLOR.
Result<Style> StyleOf(const StyleOptions& options);

// Prints the error on stderr. Returns its exit code.
int Fail(const Status& status);
// Prints on stdout. Returns the exit code of a failed write, else 0.
int PrintOut(const std::string& text);

}  // namespace tessera::cli
