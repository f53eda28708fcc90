// SPDX-License-Identifier: Apache-2.0
#include "src/replay/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tessera::replay {
namespace {

// The palette of Okabe and Ito, which is readable with any color vision, with violet and gray in
// place of its black and yellow.
constexpr std::array<std::string_view, 8> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                     "#e69f00", "#56b4e9", "#6b4c9a", "#7f7f7f"};

constexpr std::string_view kStyle =
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;"
    "font-size:12px;fill:#333}"
    ".title{font-size:18px;font-weight:600;fill:#111}.note{fill:#666}"
    ".panel{font-size:13px;font-weight:600;fill:#111}.tick{fill:#666;font-size:11px}"
    ".value{font-size:11px;font-weight:600}"
    ".grid{stroke:#e4e4e4;stroke-width:1}.axis{stroke:#999;stroke-width:1}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.band{stroke:none;opacity:.14}"
    ".diagonal{stroke:#999;stroke-width:1.2;stroke-dasharray:4 4}";

std::string_view ColorOf(size_t number) { return kColors[number % kColors.size()]; }

std::string EscapeXml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

template <typename... Args>
void AppendLine(std::string* out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(*out), format, std::forward<Args>(args)...);
  *out += '\n';
}

}  // namespace

std::vector<double> Ticks(double min, double max, int count) {
  const double rough = std::max(max - min, 1e-9) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= rough) {
      step = nice * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::floor(min / step + 1e-9), last = std::ceil(max / step - 1e-9);
  for (double n = first; n <= last; ++n) ticks.push_back(n * step);
  return ticks;
}

struct Chart::Scale {
  ChartBox box;
  std::vector<double> x_ticks, y_ticks;
  double x_min = 0, x_max = 1;  // y ranges from tick to tick

  double X(double x) const { return box.x + (x - x_min) / (x_max - x_min) * box.width; }
  double Y(double y) const {
    return box.y + box.height -
           (y - y_ticks.front()) / (y_ticks.back() - y_ticks.front()) * box.height;
  }
};

Chart::Chart(double width, double height) {
  AppendLine(&out_,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
             "viewBox=\"0 0 {0} {1}\" role=\"img\">\n<style>{2}</style>\n"
             "<rect width=\"{0}\" height=\"{1}\" rx=\"6\" fill=\"#fff\"/>",
             width, height, kStyle);
}

void Chart::DrawText(double x, double y, std::string_view style, std::string_view text) {
  AppendLine(&out_, "<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>", style, x, y, EscapeXml(text));
}

void Chart::DrawLegend(double x, double y, const std::vector<ChartLine>& lines) {
  for (size_t n = 0; n < lines.size(); ++n) {
    AppendLine(&out_,
               "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"3\"/>"
               "<text x=\"{}\" y=\"{}\">{}</text>",
               x, y - 4, x + 20, y - 4, ColorOf(n), x + 26, y, EscapeXml(lines[n].name));
    x += 52 + 7.2 * static_cast<double>(lines[n].name.size());
  }
}

void Chart::DrawPanel(const PanelOptions& options, const std::vector<ChartLine>& lines) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double y_min = options.from_zero ? 0 : kInfinity, y_max = -kInfinity;
  double x_min = kInfinity, x_max = -kInfinity;
  for (const ChartLine& line : lines) {
    for (const LinePoint& point : line.points) {
      y_min = std::min(y_min, point.min);
      y_max = std::max(y_max, point.max);
      x_min = std::min(x_min, point.x);
      x_max = std::max(x_max, point.x);
    }
  }
  if (x_max <= x_min) x_max = x_min + 1;
  const Scale scale{.box = options.box,
                    .x_ticks = Ticks(x_min, x_max, 8),
                    .y_ticks = Ticks(y_min, std::max(y_max, y_min + 1e-6), 6),
                    .x_min = x_min,
                    .x_max = x_max};
  DrawAxes(options, scale);
  const ChartBox& box = options.box;
  AppendLine(
      &out_,
      "<clipPath id=\"clip{0}\"><rect x=\"{1}\" y=\"{2}\" width=\"{3}\" height=\"{4}\"/></clipPath>"
      "<g clip-path=\"url(#clip{0})\">",
      clip_count_++, box.x, box.y, box.width, box.height);
  if (!options.diagonal.empty()) DrawDiagonal(options.diagonal, scale);
  for (size_t n = lines.size(); n-- > 0;) DrawLine(lines[n], n, scale);
  AppendLine(&out_, "</g>");
  DrawEndValues(options, lines, scale);
}

void Chart::DrawAxes(const PanelOptions& options, const Scale& scale) {
  const ChartBox& box = options.box;
  const double bottom = box.y + box.height;
  AppendLine(&out_, "<text class=\"panel\" x=\"{}\" y=\"{}\">{}</text>", box.x, box.y - 8,
             EscapeXml(options.title));
  for (const double y : scale.y_ticks) {
    AppendLine(&out_,
               "<line class=\"grid\" x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>"
               "<text class=\"tick\" x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>",
               box.x, scale.Y(y), box.x + box.width, box.x - 8, scale.Y(y) + 4, y);
  }
  for (const double x : scale.x_ticks) {
    if (x < scale.x_min || x > scale.x_max) continue;
    AppendLine(&out_,
               "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>"
               "<text class=\"tick\" x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:g}</text>",
               scale.X(x), bottom, bottom + 4, bottom + 18, x);
  }
  AppendLine(&out_, "<line class=\"axis\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>", box.x, bottom,
             box.x + box.width, bottom);
  AppendLine(&out_, "<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
             box.x + box.width / 2, bottom + 40, EscapeXml(options.x_label));
}

// Draws y = x as far as the panel shows it, with its name at the upper end.
void Chart::DrawDiagonal(std::string_view name, const Scale& scale) {
  AppendLine(
      &out_, "<line class=\"diagonal\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
      scale.X(scale.x_min), scale.Y(scale.x_min), scale.X(scale.x_max), scale.Y(scale.x_max));
  const double top = std::min(scale.y_ticks.back(), scale.x_max);
  AppendLine(&out_, "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", scale.X(top) + 4,
             scale.Y(top) + 12, EscapeXml(name));
}

void Chart::DrawLine(const ChartLine& line, size_t number, const Scale& scale) {
  if (line.points.empty()) return;
  std::string band, path;
  const auto add = [&](std::string* to, double x, double y) {
    *to += fmt::format("{}{:.1f} {:.1f}", to->empty() ? "M" : "L", scale.X(x), scale.Y(y));
  };
  for (const LinePoint& point : line.points) {
    add(&band, point.x, point.max);
    add(&path, point.x, point.y);
  }
  for (auto point = line.points.rbegin(); point != line.points.rend(); ++point) {
    add(&band, point->x, point->min);
  }
  AppendLine(&out_,
             "<path class=\"band\" fill=\"{0}\" d=\"{1}Z\"/><path class=\"line\" stroke=\"{0}\" "
             "d=\"{2}\"/>",
             ColorOf(number), band, path);
}

// Writes values beside the ends of the lines, moved apart where lines end close together.
void Chart::DrawEndValues(const PanelOptions& options, const std::vector<ChartLine>& lines,
                          const Scale& scale) {
  constexpr double kMinDistance = 13;
  struct Label {
    double y;
    size_t line;
  };
  std::vector<Label> labels;
  for (size_t n = 0; n < lines.size(); ++n) {
    if (!lines[n].points.empty()) labels.push_back({scale.Y(lines[n].points.back().y) + 4, n});
  }
  std::sort(labels.begin(), labels.end(), [](auto& a, auto& b) { return a.y < b.y; });
  for (size_t n = 1; n < labels.size(); ++n) {
    labels[n].y = std::max(labels[n].y, labels[n - 1].y + kMinDistance);
  }
  // Moves labels that were pushed below the axis up again.
  double lowest = scale.box.y + scale.box.height + 4;
  for (size_t n = labels.size(); n-- > 0; lowest = labels[n].y - kMinDistance) {
    labels[n].y = std::min(labels[n].y, lowest);
  }
  for (const Label& label : labels) {
    AppendLine(&out_,
               "<text class=\"value\" x=\"{}\" y=\"{:.1f}\" style=\"fill:{}\">{:.{}f}</text>",
               scale.box.x + scale.box.width + 6, label.y, ColorOf(label.line),
               lines[label.line].points.back().y, options.decimals);
  }
}

std::string Chart::Finish() { return std::move(out_) + "</svg>\n"; }

std::string PlotPair(std::string_view title, size_t seeds, PanelOptions left,
                     const std::vector<ChartLine>& left_lines, PanelOptions right,
                     const std::vector<ChartLine>& right_lines) {
  constexpr double kWidth = 1040, kHeight = 486;
  left.box = {.x = 64, .y = 120, .width = 400, .height = 296};
  right.box = {.x = 580, .y = 120, .width = 400, .height = 296};
  Chart chart(kWidth, kHeight);
  chart.DrawText(left.box.x, 34, "title", title);
  chart.DrawText(left.box.x, 54, "note",
                 seeds == 1 ? std::string("one seed")
                            : fmt::format("lines: mean of {} seeds; bands: min to max", seeds));
  chart.DrawLegend(left.box.x, 78, left_lines);
  chart.DrawPanel(left, left_lines);
  chart.DrawPanel(right, right_lines);
  return chart.Finish();
}

}  // namespace tessera::replay
