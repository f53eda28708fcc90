// SPDX-License-Identifier: Apache-2.0
#include "src/kube/event_reader.h"

#include <gtest/gtest.h>

#include "src/kube/testing/wire_writer.h"

namespace tessera::kube {
namespace {

using testing::WatchFrame;
using testing::WireWriter;

std::string Message(const std::string& version) {
  return WireWriter().Bytes(1, WireWriter().Bytes(6, version).text()).text();
}
std::string Line(const std::string& type, const std::string& version) {
  return fmt::format(
      "{{\"type\":\"{}\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{}\"}}}}}}\n", type,
      version);
}

// Reads a stream that is put in pieces: "ADDED 1, BOOKMARK 2".
std::string Read(Encoding encoding, const std::vector<std::string_view>& pieces,
                 size_t max_event = 1000) {
  constexpr const char* kNames[] = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"};
  EventReader reader(encoding, max_event);
  std::string out;
  for (const std::string_view piece : pieces) {
    reader.Put(piece);
    while (true) {
      const auto event = reader.Next();
      if (!event.ok()) return out + std::string(InfoOf(event.status().code()).name);
      if (!event->has_value()) break;
      out += fmt::format("{} {}, ", kNames[static_cast<int>((*event)->type)],
                         (*event)->object.ResourceVersion());
    }
  }
  return out;
}

TEST(EventReaderTest, EventsMayBeSplitAnywhere) {
  const std::string frames = WatchFrame("ADDED", "Pod", Message("1")) +
                             WatchFrame("DELETED", "Pod", Message("2")) +
                             WatchFrame("BOOKMARK", "Pod", Message("3"));
  const std::string lines =
      Line("ADDED", "1") + "\n" + Line("DELETED", "2") + Line("BOOKMARK", "3");
  for (const auto& [encoding, stream] :
       {std::pair(Encoding::kProtobuf, frames), std::pair(Encoding::kJson, lines)}) {
    for (size_t cut = 0; cut <= stream.size(); ++cut) {
      const std::string_view all = stream;
      ASSERT_EQ(Read(encoding, {all.substr(0, cut), all.substr(cut)}),
                "ADDED 1, DELETED 2, BOOKMARK 3, ");
    }
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < stream.size(); ++i)
      bytes.push_back(std::string_view(stream).substr(i, 1));
    EXPECT_EQ(Read(encoding, bytes), "ADDED 1, DELETED 2, BOOKMARK 3, ");
  }
}

TEST(EventReaderTest, AnEventMayNotBeLongerThanItsLimit) {
  const std::string line = Line("ADDED", std::string(100, '1'));
  EXPECT_EQ(Read(Encoding::kJson, {line}, 50), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(Read(Encoding::kJson, {std::string_view(line).substr(0, 60)}, 50),
            "RESOURCE_EXHAUSTED");
  // The length alone suffices to reject it: nothing is buffered.
  EXPECT_EQ(Read(Encoding::kProtobuf, {"\x7f\xff\xff\xff"}, 50), "RESOURCE_EXHAUSTED");
}

TEST(EventReaderTest, ReleasesTheMemoryOfALargeCollection) {
  EventReader reader(Encoding::kJson, 1000);
  std::string lines;
  while (lines.size() < 4 * EventReader::kMaxIdleBuffer) lines += Line("ADDED", "1");
  reader.Put(lines.substr(0, lines.size() - 1));
  const auto read_all = [&] {
    size_t count = 0;
    for (auto event = reader.Next(); event.ok() && event->has_value(); event = reader.Next()) {
      ++count;
    }
    return count;
  };
  const size_t count = read_all();
  EXPECT_GE(reader.CapacityForTest(), lines.size() - 1) << "the last event is incomplete";
  reader.Put("\n");
  EXPECT_EQ(read_all(), 1u);
  EXPECT_LE(reader.CapacityForTest(), EventReader::kMaxIdleBuffer);
  reader.Put(lines);
  EXPECT_EQ(read_all(), count + 1);
}

TEST(EventReaderTest, InvalidBytesAreAnError) {
  const std::string good = Line("ADDED", "1");
  EXPECT_EQ(Read(Encoding::kJson, {good, "x\n"}), "ADDED 1, INVALID_ARGUMENT");
  EXPECT_EQ(Read(Encoding::kJson, {Line("GONE", "1")}), "INVALID_ARGUMENT");
  EXPECT_EQ(Read(Encoding::kJson, {"{\"type\":\"ADDED\"}\n"}), "INVALID_ARGUMENT");
  const std::string frame = WatchFrame("GONE", "Pod", Message("1"));
  EXPECT_EQ(Read(Encoding::kProtobuf, {frame}), "INVALID_ARGUMENT");
  EXPECT_EQ(Read(Encoding::kProtobuf, {std::string_view("\0\0\0\1x", 5)}), "INVALID_ARGUMENT");
  EXPECT_EQ(Read(Encoding::kProtobuf, {std::string_view("\0\0\0\0", 4)}), "INVALID_ARGUMENT");
}

TEST(EventReaderTest, AnErrorCarriesItsStatus) {
  const std::string status = WireWriter().Bytes(3, "old").Bytes(4, "Expired").Varint(6, 410).text();
  EventReader reader(Encoding::kProtobuf, 1000);
  const std::string frame = WatchFrame("ERROR", "Status", status);
  reader.Put(frame);
  const auto event = reader.Next();
  ASSERT_TRUE(event.ok() && event->has_value());
  EXPECT_EQ((*event)->type, EventType::kError);
  EXPECT_EQ(StatusOf(**event).code, 410);
  EXPECT_EQ(StatusOf({EventType::kError, RawObject(Json::MakeObject())}).code, 0);
}

}  // namespace
}  // namespace tessera::kube
