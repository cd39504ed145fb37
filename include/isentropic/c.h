/* isentropic for every language that calls C: operations by name, parameters as JSON, arrays by name. C99 and C++.

   isentropic_registry() lists all operations with their parameters and arrays, so a binding can be generated. These
   declarations only grow: a program built with an older header runs with a newer library. */
#ifndef ISENTROPIC_C_H
#define ISENTROPIC_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ISENTROPIC_C_API __attribute__((visibility("default")))
#else
#define ISENTROPIC_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one with every addition here; isentropic_interface_version() returns the library's number. */
#define ISENTROPIC_C_VERSION 4

/* Results of functions. */
enum {
  ISENTROPIC_OK = 0,
  ISENTROPIC_INVALID_ARGUMENT = 1, /* isentropic_last_error() names the argument, its value and what is allowed */
  ISENTROPIC_OUT_OF_MEMORY = 2,
  ISENTROPIC_INTERNAL_ERROR = 3
};

/* The type of an array's numbers. */
enum {
  ISENTROPIC_FLOAT32 = 1,
  ISENTROPIC_FLOAT64 = 2,
  ISENTROPIC_FLOAT16 = 3,
  ISENTROPIC_BFLOAT16 = 4,
  ISENTROPIC_INT32 = 5,
  ISENTROPIC_INT64 = 6
};

/* rows x cols numbers in the caller's memory: number (r, c) is at data + (r * row_stride + c * col_stride) * size of a
   number. Strides count numbers. A row_stride of 0 means cols * col_stride, a col_stride of 0 means 1. An array with one
   number for each row has cols = 1. */
typedef struct isentropic_array {
  size_t struct_size; /* sizeof(isentropic_array); it tells the library which fields the caller's header has */
  const char* name;   /* the name of the operation's array: "x", "y", "grad" */
  void* data;
  size_t rows, cols;
  ptrdiff_t row_stride, col_stride;
  int32_t type;     /* ISENTROPIC_FLOAT32 ... */
  int32_t reserved; /* 0 */
} isentropic_array;

/* Runs `operation`. `parameters`, such as "{\"alpha\": 1.3}", is a JSON object, or null for none; parameters that it does
   not name keep their defaults. A parameter may also be an array of the same name, with a value for each row. "out?" and
   "in?" are arrays that may be left out.

     map, logarithm      x in, y out
     measure, entry      p in, value out, dp out?
     divergence          p, q in, value out, dp, dq out?; q may have one row
     table               pxy in, value out, 1 x 1, dp out?
     table_map           x in, y out: one table
     loss                x, target in, value out, dx out?; target: integers, one for each row, or rows x cols
     gamma_for_entropy   x in, gamma, reached, status out; reached is the entropy reached, status is 0 ok, 1 clamped_low,
                         2 clamped_high, 3 constant, 4 invalid
     power_transform     p in, q out
     mean_field_entropy  x in, value out
     sample              x in, indices out: a draw for each of its columns
     gumbel_softmax      x in, y out
     sampler_probs       x in, y out: the distribution after a chain of steps
     sampler_sample      x in, indices out: draws from that distribution
     attention           q, k, v in, mask, sinks in?; out out, weights, entropy out?
     linear_attention    q, k, v in, out out
     wasserstein_1d      u, v in, u_weights, v_weights in?; value out, du, dv out?
     wasserstein_histogram
                         p, q in, support in? (default 0, 1, 2 ...); value out, dp, dq out?
     wasserstein         x, y in, a point in each row, their weights a, b in?; value out, 1 x 1, plan out?
     sinkhorn_divergence, unbalanced_sinkhorn_divergence
                         as wasserstein, without plan
     sliced_wasserstein  as sinkhorn_divergence, with directions in, one in each row, and error out?
     optimal_transport   a, b, cost in: each row of a and b is a problem; cost has the costs of all problems, one below the
                         other, or one for all; value out, plan (with a part for each problem), f, g, gap, status out?;
                         status is 0 optimal, 1 infeasible, 2 pivot_limit
     partial_transport   as optimal_transport, with multiplier out?
     unbalanced_sinkhorn a, b, cost in; value out, plan, f, g, gap, iterations, converged out?
     sinkhorn_barycenter p, a distribution in each row, and cost in, weights in?; q out, 1 x the columns of cost,
                         f, g, marginal_error, iterations, converged out?
     sinkhorn            a, b, cost in; value out, plan, f, g, marginal_error, lower_bound, upper_bound, iterations,
                         converged out?

   value of optimal_transport, partial_transport and sinkhorn is <plan, cost>, without the entropy.

   Arrays with one value for each row may be float32 or float64, integers 32 or 64 bits. All other arrays have one
   floating-point type; it is float32 or float64 for gamma_for_entropy, power_transform and mean_field_entropy. Losses and
   measures give the gradient in a parameter that is an array as d_NAME, with one number for each row. sample,
   gumbel_softmax and sampler_sample also have the parameters seed, stream and position; stream may be an array. "steps" of
   both samplers is a list in the order of application, [{"name": "temperature", "temperature": 0.8}, {"name": "top_k",
   "k": 50}].

   Attention has batch x heads matrices one below the other in q and out, and batch x kv_heads in k and v, with the
   parameters batch, heads and kv_heads (defaults 1, 1 and heads). Its mask is added to the scaled scores, and -inf hides a
   key; it has a row for each query, or for each query of one head. Its map is a name or an object, {"map": {"name":
   "entmax", "alpha": 1.3}}. Attention and transport take float32 and float64, in rows with a col_stride of 1.

   Returns ISENTROPIC_OK or an error; after an error the outputs are undefined. Any number of threads may call at once. */
ISENTROPIC_C_API int isentropic_apply(const char* operation, const char* parameters, const isentropic_array* arrays,
                                      size_t count);

/* The gradient of a map, of rows or of a table, or of a logarithm: x, y, grad in, dx out; d_NAME takes the gradient in a
   parameter that is an array. For attention and linear_attention: q, k, v, grad in, dq, dk, dv out; for attention also mask,
   sinks, entropy_grad in?, dsinks out?. */
ISENTROPIC_C_API int isentropic_apply_vjp(const char* operation, const char* parameters, const isentropic_array* arrays,
                                          size_t count);

/* A call that is prepared once and run often: with the operation looked up and the parameters parsed, isentropic_run asks for
   no memory if the arrays can be read in place. vjp: 0 for isentropic_apply, otherwise isentropic_apply_vjp. A handle does not
   change, so any number of threads may run it at once. isentropic_prepare gives null after an error; isentropic_release takes
   null too. Since version 3. */
typedef struct isentropic_call isentropic_call;
ISENTROPIC_C_API isentropic_call* isentropic_prepare(const char* operation, const char* parameters, int vjp);
ISENTROPIC_C_API int isentropic_run(const isentropic_call* call, const isentropic_array* arrays, size_t count);
ISENTROPIC_C_API void isentropic_release(isentropic_call* call);

/* Calls of this thread use at most n threads from here on, and fewer where the process allows fewer; 0 is no limit. Returns the
   limit before. Since version 4. */
ISENTROPIC_C_API size_t isentropic_limit_threads(size_t n);

/* The message of this thread's last failed call; valid until the thread's next call that fails. */
ISENTROPIC_C_API const char* isentropic_last_error(void);

/* All operations as JSON: an array of {"family", "name", "summary", "formula", "arrays": [{"name",
   "output", "optional"}], "vjp": arrays or null, "parameters": [{"name", "meaning", "kind", "required", "per_row",
   "still_with", "allowed", "default", "choices"}]}. A parameter of kind "steps" also has "steps", with the parameters of
   each. */
ISENTROPIC_C_API const char* isentropic_registry(void);

/* The library's version, "0.3.0", and the ISENTROPIC_C_VERSION that it was built with. */
ISENTROPIC_C_API const char* isentropic_version(void);
ISENTROPIC_C_API int isentropic_interface_version(void);

#ifdef __cplusplus
}
#endif

#endif
