// A page with a picture of how well probabilities are calibrated.
#pragma once

#include <isentropic/calibration.h>

#include <string>
#include <vector>

// A reliability diagram: the title of the probabilities, and the bins of their rows.
struct Reliability {
  std::string title;
  double error;  // the expected calibration error
  std::vector<isentropic::ReliabilityBin> bins;
};

// A whole page, light and dark, that needs no scripts and no network: the diagrams side by side, and their numbers as tables.
// It shows `heading` and, below it, the line `said`.
std::string reliability_html(const std::string& heading, const std::string& said, const std::vector<Reliability>& diagrams);
