#include "tests/oracle/transport.h"

#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

namespace oracle {

std::optional<std::int64_t> transport(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b,
                                      const std::vector<std::int64_t>& cost) {
  using Graph = lemon::SmartDigraph;
  Graph graph;
  std::vector<Graph::Node> nodes;
  for (std::size_t v = 0; v < a.size() + b.size(); ++v) nodes.push_back(graph.addNode());
  Graph::NodeMap<std::int64_t> supply(graph);
  Graph::ArcMap<std::int64_t> costs(graph);
  for (std::size_t i = 0; i < a.size(); ++i) supply[nodes[i]] = a[i];
  for (std::size_t j = 0; j < b.size(); ++j) supply[nodes[a.size() + j]] = -b[j];
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      if (cost[i * b.size() + j] < 0) continue;
      costs[graph.addArc(nodes[i], nodes[a.size() + j])] = cost[i * b.size() + j];
    }
  }
  lemon::NetworkSimplex<Graph, std::int64_t, std::int64_t> simplex(graph);
  simplex.costMap(costs).supplyMap(supply);
  if (simplex.run() != lemon::NetworkSimplex<Graph, std::int64_t, std::int64_t>::OPTIMAL) return std::nullopt;
  return simplex.totalCost<std::int64_t>();
}

}  // namespace oracle
