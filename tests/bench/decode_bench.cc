// SPDX-License-Identifier: Apache-2.0
// What it costs to take a list of pods in: the same 20,000 pods as JSON and as protobuf, in pages
// of 500, decoded into what placement needs and kept in a map as an informer does. Each encoding
// runs in a process of its own, so that the memory is its own.
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

// Pages as an answer's body holds them, made one by one so that the input is not counted.
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
  const Keep keep{
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
                          ? Decode<PodObject>(RawObject(ParseJson(text).value()), keep).value()
                          : Decode<PodObject>(RawObject(text), keep).value();
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
  return 0;
}

}  // namespace
}  // namespace tessera::kube

int main(int argc, char** argv) { return tessera::kube::Main(argc, argv); }
