// SPDX-License-Identifier: Apache-2.0
// Measures the cost of dcgm-exporter's metrics: the time to make the text of 2,240 series and to
// copy it, and the time of a scrape over HTTP while the simulated driver is read every second, also
// while one of its GPUs hangs.
//
//   exporter_bench [ROUNDS [LIBRARY_DIR]]
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <set>
#include <thread>

#include "src/agent/exporter/exporter.h"
#include "src/agent/status_page.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/gpu/nvml_library.h"
#include "src/net/http_server.h"
#include "src/net/io_thread.h"
#include "src/sim/profile.h"
#include "src/sim/simgpu/driver_root.h"
#include "src/sim/state.h"

namespace tessera::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kGpus = 8;
constexpr int kDevices = 7 * kGpus;
constexpr size_t kFields = 40;
constexpr size_t kSeries = kDevices * kFields;

std::string Quantiles(std::vector<double> micros) {
  std::ranges::sort(micros);
  const auto at = [&](double q) {
    return micros[std::min(micros.size() - 1, static_cast<size_t>(q * micros.size()))];
  };
  return fmt::format("p50 {:8.1f} µs  p99 {:8.1f} µs  max {:8.1f} µs", at(0.5), at(0.99),
                     micros.back());
}

// Keeps the compiler from dropping the copy that `data` points to.
void KeepAlive(const void* data) { asm volatile("" : : "r"(data) : "memory"); }

double MicrosSince(Clock::time_point began) {
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

size_t SeriesIn(const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) count += text[at] != '#';
  return count;
}

std::shared_ptr<const GpuSample> SampleOf(int index, size_t counters) {
  auto sample = std::make_shared<GpuSample>();
  sample->index = index;
  sample->uuid = fmt::format("GPU-0c09a3d3-951c-ed01-59d5-{:012x}", index);
  sample->model = "NVIDIA H100 80GB HBM3";
  sample->pci_bus_id = fmt::format("00000000:{:02X}:00.0", index + 1);
  sample->numbers.assign(counters, 12345.678);
  sample->texts.assign(counters, "550.163.01");
  return sample;
}

// The first `most` fields that have one series for each GPU.
CounterSpecs AllCounters(size_t most) {
  CounterSpecs counters;
  for (const Field& field : AllFields()) {
    if (field.source == FieldSource::kXidTotal || field.source == FieldSource::kXidInWindow)
      continue;
    if (field.type == "label" || counters.size() == most) continue;
    counters.push_back({.field = &field,
                        .name = std::string(field.name),
                        .type = std::string(field.type),
                        .help = std::string(field.help)});
  }
  return counters;
}

// Makes and copies the text of 2,240 series: as many as 7 MIG slices of each of 8 GPUs have.
void BenchText(int rounds) {
  PageOptions options{.hostname = "node-1"};
  const CounterSpecs counters = AllCounters(kFields);
  options.counters = std::make_shared<const CounterSpecs>(counters);
  std::vector<std::shared_ptr<const GpuSample>> gpus;
  HoldersByUuid holders;
  for (int i = 0; i < kDevices; ++i) {
    gpus.push_back(SampleOf(i, counters.size()));
    holders[gpus.back()->uuid].sole_holder =
        ContainerName{"team-a", fmt::format("train-{}", i), "main"};
  }
  std::vector<double> make, copy;
  std::string text;
  for (int i = 0; i < rounds; ++i) {
    auto began = Clock::now();
    text = RenderPage(options, gpus, holders, {});
    make.push_back(MicrosSince(began));
    began = Clock::now();
    const std::string scrape = text;
    copy.push_back(MicrosSince(began));
    KeepAlive(scrape.data());
  }
  fmt::print("{} series, {} KiB, {} rounds\n", SeriesIn(text), text.size() / 1024, rounds);
  fmt::print("  make the text  {}\n  copy it        {}\n", Quantiles(make), Quantiles(copy));
}

// Makes so many containers that share the GPUs that the page has kSeries series.
std::shared_ptr<const ContainerUses> UsesOn(const std::string& text) {
  constexpr std::string_view kUuid = "UUID=\"";
  auto uses = std::make_shared<ContainerUses>();
  const size_t each = (kSeries - SeriesIn(text)) / kGpus / 2;
  std::set<std::string> uuids;
  for (size_t at = 0; (at = text.find(kUuid, at)) != std::string::npos; ++at) {
    uuids.insert(text.substr(at + kUuid.size(), text.find('"', at + kUuid.size()) - at - 6));
  }
  for (const std::string& uuid : uuids) {
    for (size_t i = 0; i < each; ++i) {
      ContainerGpuUse use{.holder = {Uid("uid"), "team-a", fmt::format("train-{}", i), "main"},
                          .uuid = uuid};
      use.reported = MiB(1);
      use.utilization = 0.001;
      uses->push_back(std::move(use));
    }
  }
  return uses;
}

// One connection to the agent's page.
class Scraper {
 public:
  explicit Scraper(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* raw = reinterpret_cast<const sockaddr*>(&address);
    TESSERA_CHECK(::connect(fd_.get(), raw, sizeof(address)) == 0);
  }
  std::string Get() {
    constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    constexpr std::string_view kLength = "Content-Length: ";
    TESSERA_CHECK(WriteFd(fd_.get(), kRequest).ok());
    std::string answer;
    for (;;) {
      const size_t body = answer.find("\r\n\r\n");
      if (body != std::string::npos) {
        const size_t length =
            std::strtoul(answer.c_str() + answer.find(kLength) + kLength.size(), nullptr, 10);
        if (answer.size() >= body + 4 + length) return answer.substr(body + 4);
      }
      std::array<char, 1 << 16> part;
      const ssize_t count = ::read(fd_.get(), part.data(), part.size());
      TESSERA_CHECK(count > 0);
      answer.append(part.data(), static_cast<size_t>(count));
    }
  }

 private:
  const Fd fd_;
};

// Scrapes the page over HTTP while the simulated driver is read, and while one GPU hangs.
void BenchScrapes(const std::string& library_dir, int rounds) {
  TempDir dir;
  ::setenv("SIMGPU_DEV_ROOT", dir.path().c_str(), 1);
  Result<sim::Profile> profile = sim::LoadProfile("h100-sxm5-80gb");
  TESSERA_CHECK(profile.ok());
  profile->gpus = kGpus;
  const std::string root = dir.path() + "/driver";
  const Status made = sim::CreateDriverRoot({.profile = *profile,
                                             .node_name = "node",
                                             .root = root,
                                             .library_dir = library_dir,
                                             .device_files = sim::DeviceFiles::kPlain,
                                             .dev_root = dir.path()});
  if (!made.ok()) {
    fmt::print("{}\n", made.ToString());
    return;
  }
  sim::State state;
  TESSERA_CHECK(state.Open(sim::StateDir(root)) == 0);
  EpollTaskRunner runner;
  net::IoThread io;
  std::thread thread([&] { runner.Run(); });
  AgentMetrics metrics;
  std::unique_ptr<gpu::ThreadCaller> caller;
  std::unique_ptr<Exporter> exporter;
  std::unique_ptr<net::HttpServer> page;
  const auto on_runner = [&](const std::function<void()>& task) {
    std::promise<void> done;
    runner.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  };
  on_runner([&] {
    caller = std::make_unique<gpu::ThreadCaller>(&runner);
    Exporter::Sources sources;
    sources.loader = std::make_shared<gpu::NvmlLibraryLoader>(root);
    sources.caller = caller.get();
    PageOptions options{.counters = std::make_shared<const CounterSpecs>(AllCounters(SIZE_MAX)),
                        .hostname = "node-1"};
    exporter = std::make_unique<Exporter>(&runner, std::move(options), std::chrono::seconds(1),
                                          std::move(sources));
    exporter->Start();
    auto started = StartStatusPage(
        &io, &runner, "127.0.0.1:0",
        [&] { return AgentStatus{.metrics = &metrics, .exporter = exporter.get()}; },
        [](const TaskRunner::Task& task) { task(); });
    TESSERA_CHECK(started.ok());
    page = *std::move(started);
  });
  Scraper scraper(page->address().port);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  on_runner([&] { exporter->SetContainerUses(UsesOn(exporter->text())); });
  for (const bool hangs : {false, true}) {
    if (hangs) TESSERA_CHECK(state.AddFault("nvmlDeviceGetPowerUsage", 3, 0, true, 0, 0) == 0);
    std::this_thread::sleep_for(std::chrono::seconds(4));
    std::vector<double> micros;
    std::string text;
    for (int i = 0; i < rounds; ++i) {
      const auto began = Clock::now();
      text = scraper.Get();
      micros.push_back(MicrosSince(began));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    fmt::print("scrape over HTTP, {} GPUs{}: {} series, {} KiB, {} rounds\n  {}\n", kGpus,
               hangs ? ", one hangs" : "", SeriesIn(text), text.size() / 1024, rounds,
               Quantiles(micros));
  }
  state.ClearFaults(nullptr, sim::kAllGpus);
  on_runner([&] {
    page.reset();
    exporter.reset();
    caller.reset();
  });
  runner.Quit();
  thread.join();
}

}  // namespace
}  // namespace tessera::agent

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  tessera::ConfigureLog({.min_severity = tessera::Severity::kError});
  tessera::agent::BenchText(rounds);
  if (argc > 2) tessera::agent::BenchScrapes(argv[2], rounds);
}
