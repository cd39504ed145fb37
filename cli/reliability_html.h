// How well probabilities are calibrated, as a page with a picture.
#pragma once

#include <entropic/calibration.h>

#include <string>
#include <vector>

// A reliability diagram: what the probabilities are, and the bins of their rows.
struct Reliability {
  std::string title;
  double error;  // the expected calibration error
  std::vector<entropic::ReliabilityBin> bins;
};

// A whole page without scripts and without a network, light and dark: one diagram beside the other, and their numbers as
// tables. `heading` and `said`, a line below it, are shown as they are.
std::string reliability_html(const std::string& heading, const std::string& said, const std::vector<Reliability>& diagrams);
