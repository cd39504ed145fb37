// entropic transport: the cheapest plan from masses to masses, exact or with entropy, and what is known of its cost.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "files/file.h"
#include "rows.h"

namespace {

struct Options {
  std::string a, b, cost;
  std::optional<double> epsilon;
};

// A file's numbers as float64, in the shape of the file.
Table doubles(Files files, const std::string& path) {
  files.in = path;
  Table table = read_table(files);
  std::vector<double> wide;
  visit_wide(table, [&](const auto& values) { wide.assign(values.begin(), values.end()); });
  table.values = std::move(wide);
  return table;
}

// Masses: one row or one column.
std::vector<double> masses(const Files& files, const std::string& path) {
  const Table table = doubles(files, path);
  if (table.rows != 1 && table.cols != 1) {
    bad_input("transport: {} must have one row or one column of masses, got {} x {}", files::input_name(path), table.rows,
              table.cols);
  }
  return std::get<std::vector<double>>(table.values);
}

void write_table(const std::string& path, const Table& table) {
  files::Output output(path);
  files::write_all(files::output_format(path), output, table);
  output.finish();
}

Table one_row(std::vector<std::string> names, std::vector<double> numbers, std::string note_name, std::string_view note) {
  Table table;
  table.rows = 1;
  table.cols = names.size();
  table.shape = {1, names.size()};
  table.header = std::move(names);
  table.values = std::move(numbers);
  table.note_header = std::move(note_name);
  table.notes = {std::string(note)};
  return table;
}

void transport(const Options& options, const Files& files) {
  const std::vector<double> a = masses(files, options.a), b = masses(files, options.b);
  Table plan = doubles(files, options.cost);
  const std::size_t n = a.size(), m = b.size();
  if (plan.rows != n || plan.cols != m) {
    bad_input("transport: {} must be {} x {}, the masses of --a by those of --b, got {} x {}", files::input_name(options.cost),
              n, m, plan.rows, plan.cols);
  }
  const auto cost = std::get<std::vector<double>>(plan.values);
  auto& values = std::get<std::vector<double>>(plan.values);
  std::vector<double> f(n), g(m);
  const auto run = [&](auto solve) {
    solve(entropic::MatrixView<const double>(a.data(), 1, n), entropic::MatrixView<const double>(b.data(), 1, m),
          entropic::MatrixView<const double>(cost.data(), n, m), entropic::MatrixView<double>(values.data(), n, m),
          entropic::MatrixView<double>(f.data(), 1, n), entropic::MatrixView<double>(g.data(), 1, m));
  };
  Table found;
  if (options.epsilon) {
    std::vector<entropic::SinkhornResult> result(1);
    run([&](auto... views) { entropic::sinkhorn<double>(views..., result, {.epsilon = *options.epsilon}); });
    const entropic::SinkhornResult& r = result[0];
    found = one_row({"cost", "lower_bound", "upper_bound", "marginal_error", "iterations"},
                    {r.cost, r.lower_bound, r.upper_bound, r.marginal_error, static_cast<double>(r.iterations)}, "status",
                    r.converged ? "converged" : "not converged");
  } else {
    std::vector<entropic::TransportResult> result(1);
    run([&](auto... views) { entropic::optimal_transport<double>(views..., result); });
    if (result[0].status == entropic::TransportStatus::kInfeasible) {
      throw std::runtime_error("transport: infeasible, every plan needs an arc of cost inf");
    }
    found = one_row({"cost", "gap"}, {result[0].cost, result[0].gap}, "status",
                    entropic::kTransportStatusNames[static_cast<std::size_t>(result[0].status)]);
  }
  if (!files.out.empty()) write_table(files.out, plan);
  if (!files::is_standard(files.out) || files.out.empty()) write_table("", found);
}

}  // namespace

void add_transport(CLI::App& app, Program& program) {
  const auto options = std::make_shared<Options>();
  CLI::App& command = *app.add_subcommand("transport", "The cheapest plan that moves masses a to masses b.");
  command.group("Transport");
  add_path(command, "--a", options->a, "standard input", "Masses, one row or column: one for each row of the costs")
      ->option_text("FILE")
      ->required();
  add_path(command, "--b", options->b, "standard input", "Masses of the same sum, one for each column of the costs")
      ->option_text("FILE")
      ->required();
  add_path(command, "--cost", options->cost, "standard input", "Costs of a unit from each to each; inf forbids")
      ->option_text("FILE")
      ->required();
  command
      .add_option_function<std::string>(
          "--epsilon", [options](const std::string& text) { set_number(options->epsilon, "--epsilon", text); },
          "Weight of the entropy, in units of the costs, above 0: a spread-out plan by Sinkhorn's iteration; without it the "
          "optimum")
      ->option_text("NUMBER");
  add_path(command, "-o", program.files.out, "standard output", "File for the plan (default: none); - instead of the result")
      ->option_text("OUT");
  command.footer(fmt::format(
      "Out comes one row of CSV: cost, gap, status (the optimum is at most gap below cost), or with --epsilon cost,\n"
      "lower_bound, upper_bound (of the optimum), marginal_error, iterations, status. Infeasible: exit status 1.\n"
      "Example: entropic transport --a a.csv --b b.csv --cost cost.npy -o plan.npy\n{}",
      kEverywhere));
  command.callback([options, &program] { program.action = [options, &files = program.files] { transport(*options, files); }; });
}
