// SPDX-License-Identifier: Apache-2.0
// Line charts as SVG, with round axis numbers, bands, and end values that do not overlap. Included
// only in src/replay. Threads: one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::replay {

struct ChartBox {
  double x = 0, y = 0, width = 0, height = 0;
};

struct LinePoint {
  double x = 0, y = 0;
  double min = 0, max = 0;  // bounds of the band
};

struct ChartLine {
  std::string name;
  std::vector<LinePoint> points;
};

struct PanelOptions {
  ChartBox box;
  std::string title;
  std::string x_label;
  bool from_zero = false;     // the y axis starts at 0
  std::string_view diagonal;  // label of the line y = x; empty: no line
  int decimals = 1;           // decimals of the end values
};

// About `count` round numbers that enclose min … max, at a distance of 1, 2 or 5 times a power of
// ten.
std::vector<double> Ticks(double min, double max, int count);

class Chart {
 public:
  Chart(double width, double height);

  // `style` is the CSS class "title" or "note".
  void DrawText(double x, double y, std::string_view style, std::string_view text);
  // Draws the names of the lines in their colors.
  void DrawLegend(double x, double y, const std::vector<ChartLine>& lines);
  // REQUIRES: at least one line with points.
  void DrawPanel(const PanelOptions& options, const std::vector<ChartLine>& lines);

  std::string Finish();

 private:
  struct Scale;

  void DrawAxes(const PanelOptions& options, const Scale& scale);
  void DrawDiagonal(std::string_view name, const Scale& scale);
  void DrawLine(const ChartLine& line, size_t number, const Scale& scale);
  void DrawEndValues(const PanelOptions& options, const std::vector<ChartLine>& lines,
                     const Scale& scale);

  std::string out_;
  int clip_count_ = 0;
};

// Two panels side by side with the same lines, each line the mean of `seeds` seeds. Sets the
// panels' boxes.
std::string PlotPair(std::string_view title, size_t seeds, PanelOptions left,
                     const std::vector<ChartLine>& left_lines, PanelOptions right,
                     const std::vector<ChartLine>& right_lines);

}  // namespace tessera::replay
