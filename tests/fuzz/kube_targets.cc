// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/kube/config.h"
#include "src/kube/event_reader.h"
#include "src/kube/object_decoders.h"
#include "src/kube/testing/samples.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

using kube::Encoding;
using kube::EventReader;

template <typename Object>
void CheckObject(std::string_view message) {
  Object read;
  const Status status = kube::FromProtobuf(message, {}, &read);
  TESSERA_CHECK(status.ok() || status.code() == Code::kInvalidArgument);
  const auto nothing = [](std::string_view) { return false; };
  Object bare;
  const kube::KeptFields kept{.label = nothing, .annotation = nothing, .resource = nothing};
  // Decoding `bare` skips labels, annotations and resources. So it may succeed where an invalid one
  // makes decoding `read` fail, but not the other way round.
  TESSERA_CHECK(kube::FromProtobuf(message, kept, &bare).ok() || !status.ok());
  TESSERA_CHECK(bare.meta.labels.empty() && bare.meta.annotations.empty());
  if (!status.ok()) return;
  Object again;
  TESSERA_CHECK(kube::FromProtobuf(kube::testing::MessageOf(read), {}, &again).ok());
  TESSERA_CHECK(again == read);
}

// Returns each event as "type version", and then the code of the error that ended the stream, if
// any.
std::vector<std::string> EventsOf(Encoding encoding, std::string_view stream, size_t piece) {
  constexpr size_t kLongest = 4096;
  EventReader reader(encoding, kLongest);
  std::vector<std::string> events;
  while (!stream.empty()) {
    reader.Put(stream.substr(0, piece));
    stream.remove_prefix(std::min(piece, stream.size()));
    while (true) {
      const auto event = reader.Next();
      if (!event.ok()) {
        TESSERA_CHECK(event.status().code() == Code::kInvalidArgument ||
                      event.status().code() == Code::kResourceExhausted);
        events.emplace_back(InfoOf(event.status().code()).name);
        return events;
      }
      if (!event->has_value()) break;
      (void)kube::StatusOf(**event);
      (void)(*event)->object.EndsInitialEvents();
      events.push_back(fmt::format("{} {}", static_cast<int>((*event)->type),
                                   (*event)->object.ResourceVersion()));
    }
  }
  return events;
}

}  // namespace

void KubeObject(std::string_view input) {
  if (input.empty()) return;
  const std::string_view message = input.substr(1);
  switch (input.front()) {
    case 'p':
      return CheckObject<kube::PodObject>(message);
    case 'n':
      return CheckObject<kube::NodeObject>(message);
    case 'c':
      return CheckObject<kube::ConfigMapObject>(message);
    case 'l':
      return CheckObject<kube::LeaseObject>(message);
    default: {  // a whole answer of the API server, with its envelope
      const auto envelope = kube::OpenEnvelope(input);
      if (envelope.ok()) (void)kube::ReadStatusMessage(envelope->message);
    }
  }
}

void Kubeconfig(std::string_view input) {
  const auto config = kube::ParseKubeconfig(input, "file", "", [](const char*) { return nullptr; });
  if (!config.ok()) {
    TESSERA_CHECK(config.status().message().find("file") != std::string::npos);
    return;
  }
  TESSERA_CHECK(!config->server.address.host.empty());
  TESSERA_CHECK(config->token.empty() || config->token_file.empty());
  TESSERA_CHECK(config->tls.certificate.empty() == config->tls.key.empty());
  if (config->exec) {
    TESSERA_CHECK(config->token.empty() && config->token_file.empty() && config->tls.key.empty());
    TESSERA_CHECK(!config->exec->argv.empty() && !config->exec->argv.front().empty());
  }
}

void WatchEvents(std::string_view input) {
  if (input.empty()) return;
  const Encoding encoding = input.front() == 'j' ? Encoding::kJson : Encoding::kProtobuf;
  const std::string_view stream = input.substr(1);
  const auto whole = EventsOf(encoding, stream, stream.size());
  for (const size_t piece : {size_t{1}, size_t{7}, stream.size() / 2 + 1}) {
    TESSERA_CHECK(EventsOf(encoding, stream, piece) == whole);
  }
}

}  // namespace tessera::fuzz
