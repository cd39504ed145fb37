/* The library entropic_cuda for every language that calls C: operations of entropic/c.h on arrays in a GPU's memory. C99 and
   C++.

   What entropic/cuda.h says of the functions holds here. Arrays, with the names that entropic/c.h gives them, have col_stride
   1; those with one number for each row have no gaps. Of the type float64 are value, parameters with a value for each row and
   their gradients "d_NAME"; classes and indices are int64. Operations: maps, log_softmax and logsumexp with their gradients,
   losses, measures of one and of two distributions, sample, gumbel_softmax, gumbel_noise (y out) and the chains sampler_probs
   and sampler_sample. What is drawn may have arrays "stream", for each row, and "seed" and "position", one number each. */
#ifndef ENTROPIC_CUDA_C_H
#define ENTROPIC_CUDA_C_H

#include "entropic/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of memory, aligned to 128, that a call with rows x cols numbers of a type wants at most; 0 where the operation is none,
   as entropic_cuda_last_error() says. */
ENTROPIC_C_API size_t entropic_cuda_memory(const char* operation, const char* parameters, size_t rows, size_t cols,
                                           int32_t type);

/* Puts the operation, or its gradient, on a stream (a cudaStream_t) of the current device, and returns: what functions of
   entropic/c.h return. */
ENTROPIC_C_API int entropic_cuda_run(const char* operation, const char* parameters, const entropic_array* arrays, size_t count,
                                     void* memory, size_t memory_size, void* stream);
ENTROPIC_C_API int entropic_cuda_vjp(const char* operation, const char* parameters, const entropic_array* arrays, size_t count,
                                     void* memory, size_t memory_size, void* stream);

/* What was wrong in this thread's last call. */
ENTROPIC_C_API const char* entropic_cuda_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
