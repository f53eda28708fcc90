// SPDX-License-Identifier: Apache-2.0
// Measures the cost of reading a list of pods: the same 20,000 pods as JSON and as protobuf, in
// pages of 500, decoded into the fields that placement needs, and kept in a map as an informer
// does. Each encoding runs in a process of its own, so that its memory is measured alone. Then the
// program decodes the annotations of a node with 8 GPUs and of a pod, in one pass and as JSON
// documents.
//   decode_bench [pods, 20000]
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/file.h"
#include "src/device/assignment.h"
#include "src/device/node_annotation.h"
#include "src/kube/informer.h"
#include "src/kube/objects.h"
#include "src/kube/testing/samples.h"

namespace tessera::kube {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPage = 500;

// "VmRSS:   1234 kB" of /proc/self/status.
double MemoryMiB() {
  const std::string status = ReadFile("/proc/self/status").value();
  return std::atof(status.c_str() + status.find("VmRSS:") + 6) / 1024;
}

// Makes the body of one page. Pages are made one by one, so that the input does not count as
// memory.
std::string Page(Encoding encoding, Random& random, int first, std::vector<size_t>* ends) {
  std::string page;
  ends->clear();
  for (int i = first; i < first + kPage; ++i) {
    const PodObject pod = testing::SamplePod(random, i);
    page += encoding == Encoding::kJson ? testing::JsonOf(pod) : testing::MessageOf(pod);
    ends->push_back(page.size());
  }
  return page;
}

void Measure(Encoding encoding, int pods) {
  const KeptFields kept{
      .label = [](std::string_view) { return false; },
      .annotation = [](std::string_view key) { return key.starts_with("tessera.dev/"); },
      .resource = [](std::string_view key) { return key.find('/') != key.npos; }};
  Random random(1);
  std::unordered_map<std::string, PodObject> store;
  const double before = MemoryMiB();
  size_t bytes = 0;
  Clock::duration spent{};
  std::vector<size_t> ends;
  for (int first = 0; first < pods; first += kPage) {
    const std::string page = Page(encoding, random, first, &ends);
    bytes += page.size();
    const auto start = Clock::now();
    size_t begin = 0;
    for (const size_t end : ends) {
      const std::string_view text = std::string_view(page).substr(begin, end - begin);
      PodObject pod = encoding == Encoding::kJson
                          ? Decode<PodObject>(RawObject(ParseJson(text).value()), kept).value()
                          : Decode<PodObject>(RawObject(text), kept).value();
      store.emplace(KeyOf(pod.meta), std::move(pod));
      begin = end;
    }
    spent += Clock::now() - start;
  }
  const double seconds = std::chrono::duration<double>(spent).count();
  std::printf("%-9s %8.1f %10.1f %12.2f %12.1f\n",
              encoding == Encoding::kJson ? "JSON" : "protobuf",
              static_cast<double>(bytes) / (1 << 20), seconds * 1e3, seconds * 1e6 / pods,
              MemoryMiB() - before);
}

// Microseconds for one call of `decode`.
template <typename Decode>
double Microseconds(const Decode& decode) {
  constexpr int kCalls = 2000;
  const auto start = Clock::now();
  for (int i = 0; i < kCalls; ++i) TESSERA_CHECK(decode().ok());
  return std::chrono::duration<double>(Clock::now() - start).count() * 1e6 / kCalls;
}

// Adds a member of a later version to `text`, so that the reader falls back to a JSON document.
std::string WithUnknownMember(std::string text) {
  return text.insert(text.size() - 1, ",\"later\":1");
}

// Measures annotations as our encoders write them (device/plain_json.h), and as JSON documents.
void MeasureAnnotations() {
  device::NodeInventory node{.driver_version = "550.163.01", .cuda_version = 12040};
  for (int i = 0; i < 8; ++i) {
    node.gpus.push_back({.uuid = fmt::format("GPU-f1e2d3c4-0000-4444-8888-{:012}", i),
                         .index = i,
                         .minor = i,
                         .model = "NVIDIA A100-SXM4-80GB",
                         .memory = GiB(80),
                         .pci_bus_id = fmt::format("0000:{:02x}:00.0", i + 1),
                         .numa_node = i / 4,
                         .compute_capability = device::ComputeCapability{8, 0}});
  }
  node.links = device::LinkMatrix(8);
  const std::string inventory = device::EncodeNodeInventory(node).value();
  const std::string assignment =
      device::EncodeAssignment({{{"main", {{node.gpus[0].uuid, kWholeGpu, GiB(80)}}}}}).value();
  const auto print = [](const char* name, const std::string& text, const auto& decode) {
    const std::string other = WithUnknownMember(text);
    const double plain = Microseconds([&] { return decode(text); });
    const double document = Microseconds([&] { return decode(other); });
    std::printf("%-22s %8.2f us, as a document %8.2f us: %.1f times\n", name, plain, document,
                document / plain);
  };
  print("tessera.dev/devices", inventory, device::DecodeNodeInventory);
  print("tessera.dev/assignment", assignment, device::DecodeAssignment);
}

int Main(int argc, char** argv) {
  const int pods = argc > 1 ? std::atoi(argv[1]) : 20000;
  if (pods < kPage) {
    std::fprintf(stderr, "usage: decode_bench [pods, at least %d]\n", kPage);
    return 64;
  }
  std::printf("%d pods       MiB         ms      us a pod    MiB kept\n", pods);
  std::fflush(stdout);
  for (const Encoding encoding : {Encoding::kJson, Encoding::kProtobuf}) {
    const pid_t child = ::fork();
    if (child == 0) {
      Measure(encoding, pods);
      std::fflush(stdout);
      ::_exit(0);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) < 0 || status != 0) return 1;
  }
  MeasureAnnotations();
  return 0;
}

}  // namespace
}  // namespace tessera::kube

int main(int argc, char** argv) { return tessera::kube::Main(argc, argv); }
