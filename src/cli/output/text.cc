// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "src/base/strings.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Length of the UTF-8 sequence at the front; 0 if it is invalid.
size_t SequenceLength(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return length <= text.size() && IsValidUtf8(text.substr(0, length)) ? length : 0;
}

bool IsPrintable(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0) >= 0x20 && byte(0) != 0x7f;
  if (sequence.size() == 2) return byte(0) != 0xc2 || byte(1) >= 0xa0;  // C1 controls
  if (sequence.size() != 3 || byte(0) != 0xe2) return true;
  // U+200B-200F, U+2028-202E, U+2066-2069: zero width, line breaks, bidirectional controls.
  if (byte(1) == 0x80)
    return !(byte(2) >= 0x8b && byte(2) <= 0x8f) && !(byte(2) >= 0xa8 && byte(2) <= 0xae);
  return byte(1) != 0x81 || byte(2) < 0xa6 || byte(2) > 0xa9;
}

// A number with at most one decimal.
std::string TextOfNumber(double number) {
  std::string text = fmt::format("{:.1f}", number);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    const std::string_view sequence = text.substr(0, length == 0 ? 1 : length);
    out += length != 0 && IsPrintable(sequence) ? sequence : kReplacement;
    text.remove_prefix(sequence.size());
  }
  return out;
}

std::string PrintableJson(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const auto byte = static_cast<unsigned char>(json[i]);
    const auto next = static_cast<unsigned char>(i + 1 < json.size() ? json[i + 1] : 0);
    if (byte == 0x7f) {
      out += "\\u007f";
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      out += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      out += json[i];
    }
  }
  return out;
}

size_t WidthOf(std::string_view text) {
  // fmt pads by terminal columns. A text has at most `text.size()` columns, so the padding that fmt
  // adds to reach them gives the width.
  return 2 * text.size() - fmt::formatted_size("{:<{}}", text, text.size());
}

std::string MemoryText(Bytes bytes) {
  const auto count = static_cast<double>(bytes.count());
  if (bytes >= GiB(1)) return TextOfNumber(count / (1 << 30)) + " GiB";
  if (bytes >= MiB(1) || bytes == Bytes(0)) return TextOfNumber(count / (1 << 20)) + " MiB";
  return fmt::format("{} bytes", bytes.count());
}

std::string MemoryText(Bytes part, Bytes whole) {
  const bool gib = whole >= GiB(1);
  const double unit = gib ? 1 << 30 : 1 << 20;
  return fmt::format("{}/{} {}", TextOfNumber(static_cast<double>(part.count()) / unit),
                     TextOfNumber(static_cast<double>(whole.count()) / unit), gib ? "GiB" : "MiB");
}

std::string GpuCountText(int64_t milli) {
  return fmt::format("{:.10g}", static_cast<double>(milli) / 1000);
}

std::string AlignTabs(std::string_view text) {
  constexpr size_t kPadding = 2;
  struct Line {
    std::vector<std::string_view> cells;
    std::vector<size_t> widths;
    bool Ends(size_t column) const { return column + 1 < cells.size(); }
  };
  std::vector<Line> lines;
  size_t columns = 0;
  for (const std::string_view line : Split(text, '\n')) {
    lines.push_back({Split(line, '\t'), {}});
    lines.back().widths.resize(lines.back().cells.size());
    columns = std::max(columns, lines.back().cells.size());
  }
  for (size_t column = 0; column < columns; ++column) {
    for (size_t first = 0, end = 0; first < lines.size(); first = std::max(end, first + 1)) {
      size_t width = 0;
      for (end = first; end < lines.size() && lines[end].Ends(column); ++end) {
        width = std::max(width, WidthOf(lines[end].cells[column]) + kPadding);
      }
      for (size_t n = first; n < end; ++n) lines[n].widths[column] = width;
    }
  }
  std::string out;
  for (size_t n = 0; n < lines.size(); ++n) {
    if (n > 0) out += '\n';
    const auto& [cells, widths] = lines[n];
    for (size_t column = 0; column < cells.size(); ++column) {
      out += cells[column];
      if (lines[n].Ends(column)) out.append(widths[column] - WidthOf(cells[column]), ' ');
    }
  }
  return out;
}

}  // namespace tessera::cli
