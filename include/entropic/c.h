/* entropic for every language that calls C: operations by name, parameters as JSON, arrays by name. C99 and C++.

   What there is, which parameters and which arrays each operation takes, entropic_registry() says; so a binding can be
   generated. These declarations only grow: a program built with an older header runs with a newer library. */
#ifndef ENTROPIC_C_H
#define ENTROPIC_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ENTROPIC_C_API __attribute__((visibility("default")))
#else
#define ENTROPIC_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one whenever something is added here; entropic_interface_version() is the library's. */
#define ENTROPIC_C_VERSION 2

/* What functions return. */
enum {
  ENTROPIC_OK = 0,
  ENTROPIC_INVALID_ARGUMENT = 1, /* entropic_last_error() names the argument, its value and what is allowed */
  ENTROPIC_OUT_OF_MEMORY = 2,
  ENTROPIC_INTERNAL_ERROR = 3
};

/* The type of an array's numbers. */
enum {
  ENTROPIC_FLOAT32 = 1,
  ENTROPIC_FLOAT64 = 2,
  ENTROPIC_FLOAT16 = 3,
  ENTROPIC_BFLOAT16 = 4,
  ENTROPIC_INT32 = 5,
  ENTROPIC_INT64 = 6
};

/* rows x cols numbers in memory of the caller's: number (r, c) is at data + (r * row_stride + c * col_stride) * the size of
   one. Strides count numbers. A row_stride of 0 stands for cols * col_stride, a col_stride of 0 for 1. One number for each
   row is an array with cols = 1. */
typedef struct entropic_array {
  size_t struct_size; /* sizeof(entropic_array), by which the library knows which fields the caller's header has */
  const char* name;   /* which of the operation's arrays this is: "x", "y", "grad" */
  void* data;
  size_t rows, cols;
  ptrdiff_t row_stride, col_stride;
  int32_t type;     /* ENTROPIC_FLOAT32 ... */
  int32_t reserved; /* 0 */
} entropic_array;

/* Does `operation`. `parameters`, such as "{\"alpha\": 1.3}", is a JSON object, or null for none; what it does not name
   keeps its default. A parameter may be an array of its own name too, with a value for each row.

     map, logarithm      x in, y out
     measure, entry      p in, value out, dp out or left out
     divergence          p, q in, value out, dp and dq out or left out; q may have one row
     table               pxy in, value out, 1 x 1, dp out or left out
     loss                x, target in, value out, dx out or left out; target: integers, one for each row, or rows x cols
     gamma_for_entropy   x in, gamma, reached, status out: the entropy reached, and 0 ok, 1 clamped_low, 2 clamped_high,
                         3 constant, 4 invalid

     power_transform     p in, q out

     mean_field_entropy  x in, value out

     sample              x in, indices out, as many for each row as it has columns

     gumbel_softmax      x in, y out

     sampler_probs       x in, y out: the distribution that a chain of steps leaves

     sampler_sample      x in, indices out: draws from it

     attention           q, k, v in, mask in or left out; out out, weights, entropy out or left out

     linear_attention    q, k, v in, out out

     wasserstein_1d      u, v in, u_weights, v_weights in or left out; value out, du, dv out or left out

     wasserstein_histogram
                         p, q in, support in or left out (0, 1, 2 ...); value out, dp, dq out or left out

     wasserstein         x, y in, a point in each row, their weights a, b in or left out; value out, 1 x 1, plan out or left
                         out

     sinkhorn_divergence the same without plan

     sliced_wasserstein  the same with directions in, a row each, and error out or left out

     optimal_transport   a, b, cost in, a problem in each row of a and b; cost of all problems, one below the other, or one for
                         all; value out, plan, as cost of all, f, g, gap, status out or left out: 0 optimal, 1 infeasible,
                         2 pivot_limit

     partial_transport   the same, with multiplier

     unbalanced_sinkhorn the same; value out, plan, f, g, gap, iterations, converged out or left out

     sinkhorn_barycenter p, a distribution in each row, and cost in, weights in or left out; q out, 1 x the columns of cost,
                         marginal_error, iterations, converged out or left out

     sinkhorn            a, b, cost in; value out, plan, f, g, marginal_error, lower_bound, upper_bound, iterations, converged
   out or left out

   A value of which there is one for each row may be float32 or float64, integers 32 or 64 bits; other arrays are all of one
   floating-point type, of 32 or 64 bits for gamma_for_entropy, power_transform and mean_field_entropy. Losses and measures give
   the gradient in a parameter that is an array as d_NAME, one for each row. sample and gumbel_softmax have the parameters seed,
   stream, position beside their own; stream may be an array. So does sampler_sample. "steps" of both samplers is a list in the
   order applied, [{"name": "temperature", "temperature": 0.8}, {"name": "top_k", "k": 50}].

   Attention has batch x heads matrices one below the other in q and out, batch x kv_heads in k and v, by the parameters batch,
   heads and kv_heads; they are 1, 1 and heads where not given. Its mask is added to the scaled scores, and -inf hides a key; it
   has a row for each query, or for each query of one head. Its map is a name or an object, {"map": {"name": "entmax",
   "alpha": 1.3}}. Attention and transport take float32 and float64, in rows whose col_stride is 1.

   Returns ENTROPIC_OK or what went wrong; then outputs hold nothing of use. Any number of threads may call at once. */
ENTROPIC_C_API int entropic_apply(const char* operation, const char* parameters, const entropic_array* arrays, size_t count);

/* The gradient of a map or a logarithm: x, y, grad in, dx out. In a parameter given as an array, d_NAME takes it.
   Of attention and linear_attention: q, k, v, grad in, dq, dk, dv out. */
ENTROPIC_C_API int entropic_apply_vjp(const char* operation, const char* parameters, const entropic_array* arrays,
                                      size_t count);

/* Why the last call of this thread that did not return ENTROPIC_OK failed; valid until the thread's next call that fails. */
ENTROPIC_C_API const char* entropic_last_error(void);

/* All operations of these functions as JSON: an array of {"family", "name", "summary", "formula", "arrays": [{"name",
   "output", "optional"}], "vjp": arrays or null, "parameters": [{"name", "meaning", "kind", "required", "per_row",
   "allowed", "default", "choices"}]}. Of kind "steps" a parameter also has "steps", with the parameters of each. */
ENTROPIC_C_API const char* entropic_registry(void);

/* The library's version, "0.2.0", and the ENTROPIC_C_VERSION that it was built with. */
ENTROPIC_C_API const char* entropic_version(void);
ENTROPIC_C_API int entropic_interface_version(void);

#ifdef __cplusplus
}
#endif

#endif
