// The maps as commands, and softmax's logarithms.
#include "commands.h"
#include "operation.h"

void add_maps(CLI::App& app, Program& program) {
  add_rows<isentropic::Map>(app, program);
  add_rows<isentropic::Logarithm>(app, program);
}
