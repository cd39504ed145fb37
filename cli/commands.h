// The groups of commands, one function and one file for each; main.cc calls them in the order of the help.
#pragma once

#include <CLI/CLI.hpp>

#include "options.h"

void add_list(CLI::App& app, Program& program);
void add_shell(CLI::App& app, Program& program);
void add_compare(CLI::App& app, Program& program);
void add_explore(CLI::App& app, Program& program);
void add_describe(CLI::App& app, Program& program);
void add_maps(CLI::App& app, Program& program);
void add_entropy_control(CLI::App& app, Program& program);
void add_table_maps(CLI::App& app, Program& program);
void add_measures(CLI::App& app, Program& program);
void add_losses(CLI::App& app, Program& program);
void add_calibration(CLI::App& app, Program& program);
void add_sample(CLI::App& app, Program& program);
void add_transport(CLI::App& app, Program& program);
void add_distances(CLI::App& app, Program& program);
