// SPDX-License-Identifier: Apache-2.0
// Compares the output of tessera with that of the real kubectl for the same list. kubectl gets the
// list from a server that answers like an API server, because a real API server cannot be made to
// serve arbitrary objects.
#include <glob.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <set>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/base/subprocess.h"
#include "src/cli/output/listing.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::cli {
namespace {

// The test cluster's kubectl in the cache; "" if it is not built.
std::string KubectlProgram() {
  const char* cache = std::getenv("TESSERA_CACHE");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr  ? cache
                             : home != nullptr ? JoinPath(home, ".cache/tessera")
                                               : "";
  glob_t found{};
  std::string program;
  if (::glob((folder + "/kubectl-*/kubectl").c_str(), 0, nullptr, &found) == 0) {
    program = found.gl_pathv[found.gl_pathc - 1];
  }
  ::globfree(&found);
  return program;
}

constexpr char kList[] = R"({"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},
"items":[
 {"apiVersion":"v1","kind":"Node","metadata":{"name":"n10","labels":{"nvidia.com/gpu.present":"true",
   "zone":"b"}},"spec":{"unschedulable":true,"size":3,"share":0.25,"taints":[],
   "tiny":[0.00005,0.0000005]},
  "status":{"capacity":{"memory":"2Gi"},"conditions":[{"type":"Ready","status":"True"},
   {"type":"GPUReady","status":"False","reason":"GPUUnhealthy"}],"addresses":["a","b","c","d","e"]}},
 {"apiVersion":"v1","kind":"Node","metadata":{"name":"n2","labels":{"zone":"a"}},
  "spec":{"size":20,"share":12345678.5},"status":{"capacity":{"memory":"900Mi"},
  "conditions":[{"type":"Ready","status":"True"}],"addresses":["x"]}},
 {"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"spec":{"size":100,"share":1e30,
  "podCIDR":null},"status":{"capacity":{"memory":"1Ti"},"note":"it's \"quoted\" <b> & more"}}]})";

// kubectl replaces the list's head by its own.
Json ListAsKubectlHasIt() {
  const Json list = ParseJson(kList).value();
  return Json::MakeObject({{"apiVersion", Json::String("v1")},
                           {"items", *list.Find("items")},
                           {"kind", Json::String("List")},
                           {"metadata", ParseJson(R"({"resourceVersion":""})").value()}});
}

std::string ApiAnswer(std::string_view path) {
  if (path == "/api") return R"({"kind":"APIVersions","versions":["v1"]})";
  if (path == "/apis") return R"({"kind":"APIGroupList","apiVersion":"v1","groups":[]})";
  if (path == "/api/v1") {
    return R"({"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"nodes",)"
           R"("singularName":"node","namespaced":false,"kind":"Node","verbs":["get","list"]}]})";
  }
  return path == "/api/v1/nodes" ? kList : "";
}

class KubectlOutputTest : public ::testing::Test {
 protected:
  KubectlOutputTest() {
    server_.SetFault([](const net::Request& request, const net::HttpServer::Reply& reply) {
      const std::string body = ApiAnswer(request.path());
      reply({body.empty() ? 404 : 200, {{"Content-Type", "application/json"}}, body});
      return true;
    });
  }
  void SetUp() override {
    if (program_.empty()) {
      GTEST_SKIP() << "no Kubernetes is built: (cd tests/cluster && go run ./cmd/testcluster up)";
    }
  }

  // What kubectl prints for the list, or "failed".
  std::string Kubectl(const StyleOptions& options) {
    std::vector<std::string> argv{program_,   "get",
                                  "nodes",    "--cache-dir=" + dir_.path(),
                                  "--server", server_.url().ToString(),
                                  "-o",       options.output};
    if (!options.sort_by.empty()) argv.push_back("--sort-by=" + options.sort_by);
    if (options.no_headers) argv.emplace_back("--no-headers");
    std::optional<Result<SubprocessResult>> done;
    std::mutex mutex;
    Worker worker("kubectl");
    worker.Post([&] {
      auto result = RunProgram(argv, std::chrono::seconds(60), {"KUBECONFIG=/dev/null"});
      const std::lock_guard lock(mutex);
      done = std::move(result);
    });
    runner_.RunUntil(
        [&] {
          const std::lock_guard lock(mutex);
          return done.has_value();
        },
        std::chrono::seconds(70));
    if (!done || !done->ok()) return "kubectl did not run";
    last_error_ = (*done)->err;
    return (*done)->exit_code == 0 ? (*done)->out : "failed";
  }

  static std::string Tessera(const StyleOptions& options) {
    const Result<Style> style = MakeStyle(options, false);
    if (!style.ok()) return "failed";
    Listing list{.kind = "Node"};
    const Json document = ListAsKubectlHasIt();
    for (const Json& item : document.Find("items")->items()) list.rows.push_back({item, {}});
    if (style->format == OutputFormat::kJsonPath) {
      return PrintDocument(document, "", *style).value_or("failed");
    }
    return Print(std::move(list), *style).value_or("failed");
  }

  // Columns may be padded differently.
  static std::string Squeezed(std::string_view text) {
    std::string squeezed;
    for (const char c : text) {
      if (c == ' ' && (squeezed.empty() || squeezed.back() == ' ' || squeezed.back() == '\n')) {
        continue;
      }
      if (c == '\n' && !squeezed.empty() && squeezed.back() == ' ') squeezed.pop_back();
      squeezed += c;
    }
    return squeezed;
  }

  const std::string program_ = KubectlProgram();
  TempDir dir_;
  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  std::string last_error_;
};

constexpr const char* kTemplates[] = {
    "{.items[*].metadata.name}",
    "{.items[0].metadata.name}",
    "{.items[-1].metadata.name}",
    "{.items[0:2].metadata.name}",
    "{.items[0:3:2].metadata.name}",
    "{.items[1:].metadata.name}",
    "{.items[:-1].metadata.name}",
    "{.items[-2:].metadata.name}",
    "{.items[0,2].metadata.name}",
    "{.items[7].metadata.name}",
    "{.items[-7].metadata.name}",
    "{.items[2:1].metadata.name}",
    "{.items[0:3:0].metadata.name}",
    "{.items[*]['metadata.name','spec.size']}",
    "{.items[*]['metadata', 'spec']['name', 'size']}",
    "{.items[0].status.addresses[1:4:2]}",
    "{.items[0].status.addresses}",
    "{.items[0].metadata}",
    "{.items[0].metadata.labels.nvidia\\.com/gpu\\.present}",
    "{.items[0].metadata.labels['nvidia\\.com/gpu\\.present']}",
    "{.items[*].metadata.labels.zone}",
    "{.items[*].missing}",
    "{.items[0].missing.deeper}",
    "{.items[0].spec.taints}",
    "{.items[0].spec.taints[0]}",
    "{.items[0].spec.taints[*]}",
    "{.items[*].spec.share}",
    "{.items[*].spec.size}",
    "{.items[0].spec.tiny}",
    "{.items[0].spec.tiny[*]}",
    "{.items[0].spec.unschedulable}",
    "{.items[2].spec.podCIDR}",
    "{.items[2].spec}",
    "{.items[2].status.note}",
    "{..zone}",
    "{..type}",
    "{.items..name}",
    "{.items[2].metadata.*}x",
    "{.items[?(@.metadata.name==\"n2\")].spec.size}",
    "{.items[?(@.metadata.name=='n2')].spec.size}",
    "{.items[?(@.metadata.name!=\"n2\")].spec.size}",
    "{.items[?(@.spec.size>=20)].metadata.name}",
    "{.items[?(@.spec.size<20)].metadata.name}",
    "{.items[?(@.spec.size>3)].metadata.name}",
    "{.items[?(@.spec.size<=20)].metadata.name}",
    "{.items[?(@.spec.unschedulable)].metadata.name}",
    "{.items[?(@.spec.unschedulable==true)].metadata.name}",
    "{.items[?(@.metadata.labels.zone>\"a\")].metadata.name}",
    "{.items[?(@.metadata.name==1)].metadata.name}",
    "{.items[?(@.metadata.name=~\"n\")].metadata.name}",
    "{.items[*].status.conditions[?(@.type==\"Ready\")].status}",
    "{.items[?(@.status.conditions[?(@.type==\"GPUReady\")])].metadata.name}",
    "{.metadata[?(@.a)].b}",
    "{range .items[*]}{.metadata.name}{\"\\t\"}{.spec.size}{\"\\n\"}{end}",
    "{range .items[*]}{.metadata.name}:{range .status.conditions[*]} {.type}={.status}{end};{end}",
    "{range .items[*]}[{.metadata.name},{.metadata.labels.zone}] {end}",
    "{range .missing[*]}{.a}{end}done",
    "{range .items[0].spec.taints[*]}x{end}done",
    "plain text",
    "{.}",
    "{@}",
    "{.items[1].}",
    "{@.kind}",
    "{$.kind}",
    "{.kind} and {.apiVersion}",
    "{\"a\"}{'b'}{\"\\\"c\\\"\"}",
    "{.items[*].metadata.name}{\"\\n\"}",
    "{ .kind }",
    "{.items [0].metadata.name}",
    "{1}{-2}{1.5}{true}",
    "{.items[0].metadata.name.deeper}",
    "{.items.metadata}",
    "{.kind[0]}",
    "{.kind",
    "{kind}",
    "{.items[a]}",
    "{.items[]}",
    "{.items[\"a\"]}",
    "{end}",
    "{....kind}",
    "{.items[?(@.a==)]}",
    "{.items[?(@.a}",
    "{'unclosed}",
    "{}",
    "",
};

TEST_F(KubectlOutputTest, JsonPathGivesWhatKubectlGives) {
  size_t same = 0;
  for (const char* text : kTemplates) {
    const StyleOptions options{.output = std::string("jsonpath=") + text};
    const std::string theirs = Kubectl(options);
    EXPECT_EQ(Tessera(options), theirs) << text << "\n" << last_error_;
    same += Tessera(options) == theirs ? 1 : 0;
  }
  RecordProperty("templates", std::to_string(same));
}

TEST_F(KubectlOutputTest, CustomColumnsAndNamesAreTheSame) {
  for (const char* output :
       {"custom-columns=NAME:.metadata.name,SIZE:.spec.size",
        "custom-columns=NAME:metadata.name,ZONE:{.metadata.labels.zone}",
        "custom-columns=A:.status.addresses[*],B:.status.addresses,C:.metadata.labels",
        "custom-columns=S:.spec.share,T:.spec.taints,U:.spec.unschedulable,N:.spec.podCIDR",
        "custom-columns=C:.status.conditions[?(@.type==\"Ready\")].status", "custom-columns=NAME",
        "custom-columns=", "custom-columns=N:.a[", "name", "nonsense"}) {
    for (const bool no_headers : {false, true}) {
      const StyleOptions options{.output = output, .no_headers = no_headers};
      EXPECT_EQ(Squeezed(Tessera(options)), Squeezed(Kubectl(options))) << output << "\n"
                                                                        << last_error_;
    }
  }
}

TEST_F(KubectlOutputTest, SortByGivesTheSameOrder) {
  for (const char* path :
       {".metadata.name", "{.metadata.name}", "metadata.name", ".spec.size", ".spec.share",
        ".status.capacity.memory", ".metadata.labels.zone", ".missing"}) {
    const StyleOptions options{.output = "name", .sort_by = path};
    EXPECT_EQ(Tessera(options), Kubectl(options)) << path << "\n" << last_error_;
  }
}

TEST_F(KubectlOutputTest, JsonHasTheSameItems) {
  const auto items = [](const std::string& text) {
    return TextOfValue(*ParseJson(text).value().Find("items"));
  };
  EXPECT_EQ(items(Tessera({.output = "json"})), items(Kubectl({.output = "json"})));
}

}  // namespace
}  // namespace tessera::cli
