/* The library isentropic_cuda for every language that calls C: operations of isentropic/c.h on arrays in a GPU's memory. C99
   and C++.

   The rules of isentropic/cuda.h apply here. Arrays have the names of isentropic/c.h and a col_stride of 1; arrays with one
   number for each row have no gaps. value, parameters with a value for each row and their gradients "d_NAME" are float64;
   classes and indices are int64. Operations: maps, log_softmax and logsumexp with their gradients, losses, measures of one and
   of two distributions, sample, gumbel_softmax, gumbel_noise (y out) and the chains sampler_probs and sampler_sample.
   Operations that draw may have the arrays "stream", with a number for each row, "seed", with one number, and "position", with
   either.

   token_statistics    x, target in; statistics, top out. The parameter "top" says how many columns top has; without it there is
                       no such array. Its gradient takes statistics and grad. statistics and grad have x's type, or float32 if
                       that is a 16-bit one.
   gamma_for_entropy   x in; gamma, reached, status out, status as int32 with the numbers of isentropic/c.h. float32 or float64.
   calibration_facts, temperature_slopes, target_entropy_losses
                       x, labels in; found out, float64. The parameters are "beta" and "entropy".
   fit_temperature, fit_target_entropy
                       x, labels, and if wanted sample_weight, float64, in; value out. The parameter "ignore_index" is a label
                       whose rows are left out. fit_temperature also has clamped out, int32, if it is given.
   match_entropy       x_reference, and if wanted sample_weight in; value out.
                       The value and clamped of these three are one number each, in the host's memory: the call waits. */
#ifndef ISENTROPIC_CUDA_C_H
#define ISENTROPIC_CUDA_C_H

#include "isentropic/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes of memory, aligned to 128, that a call with rows x cols numbers of a type needs; 0 for an unknown operation,
   with a message in isentropic_cuda_last_error(). */
ISENTROPIC_C_API size_t isentropic_cuda_memory(const char* operation, const char* parameters, size_t rows, size_t cols,
                                               int32_t type);

/* Puts the operation, or its gradient, on a stream (a cudaStream_t) of the current device. Returns the same codes as
   functions of isentropic/c.h. */
ISENTROPIC_C_API int isentropic_cuda_run(const char* operation, const char* parameters, const isentropic_array* arrays,
                                         size_t count, void* memory, size_t memory_size, void* stream);
ISENTROPIC_C_API int isentropic_cuda_vjp(const char* operation, const char* parameters, const isentropic_array* arrays,
                                         size_t count, void* memory, size_t memory_size, void* stream);

/* The message of this thread's last failed call. */
ISENTROPIC_C_API const char* isentropic_cuda_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
