// SPDX-License-Identifier: Apache-2.0
#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera {
namespace {

// indent < 0 means no white space.
class JsonWriter {
 public:
  JsonWriter(int indent, std::string* out) : indent_(indent), out_(*out) {}

  void Write(const Json& json) {
    switch (json.kind()) {
      case Json::Kind::kNull:
        out_ += "null";
        break;
      case Json::Kind::kBool:
        out_ += json.bool_value() ? "true" : "false";
        break;
      case Json::Kind::kNumber:
        out_ += json.number_text();
        break;
      case Json::Kind::kString:
        AppendJsonString(json.string_value(), &out_);
        break;
      case Json::Kind::kArray:
        WriteSequence('[', ']', json.items(), [this](const Json& item) { Write(item); });
        break;
      case Json::Kind::kObject:
        WriteSequence('{', '}', json.members(), [this](const Json::Member& member) {
          AppendJsonString(member.first, &out_);
          out_ += indent_ < 0 ? ":" : ": ";
          Write(member.second);
        });
        break;
    }
  }

 private:
  template <typename Sequence, typename WriteOne>
  void WriteSequence(char open, char close, const Sequence& sequence, const WriteOne& write_one) {
    out_ += open;
    ++depth_;
    bool first = true;
    for (const auto& item : sequence) {
      if (!first) out_ += ',';
      first = false;
      NewLine();
      write_one(item);
    }
    --depth_;
    if (!first) NewLine();
    out_ += close;
  }
  void NewLine() {
    if (indent_ >= 0) out_.append(1, '\n').append(static_cast<size_t>(indent_ * depth_), ' ');
  }

  const int indent_;
  int depth_ = 0;
  std::string& out_;
};

}  // namespace

std::string Json::Serialize() const {
  std::string out;
  JsonWriter(-1, &out).Write(*this);
  return out;
}

std::string Json::Pretty() const {
  std::string out;
  JsonWriter(2, &out).Write(*this);
  return out;
}

}  // namespace tessera
