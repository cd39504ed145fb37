// Shares the rows of a batch out over threads.
#pragma once

#include <cstddef>
#include <functional>

#include "entropic/version.h"

namespace entropic::inline ENTROPIC_ABI {

// Calls work(begin, end) for consecutive pieces of [0, rows), on the calling thread alone where rows * cost_per_row is
// too little to be worth another. cost_per_row is in touched elements. No result may depend on where pieces begin, so that
// none depends on the number of threads.
void parallel_rows(std::size_t rows, std::size_t cost_per_row, const std::function<void(std::size_t, std::size_t)>& work);

// The same for groups of one row, within a piece of parallel_rows too, for the threads that have no piece. The caller's scratch
// memory stays as it is: waiting for others it does their groups, and no other piece.
void parallel_groups(std::size_t groups, std::size_t cost_per_group, const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace entropic::inline ENTROPIC_ABI
